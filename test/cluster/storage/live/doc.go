// Package live tests the volumes where they are used: on a real control plane, whose binder, scheduler and protection
// controllers do their part of the work.
//
// Its nodes run nothing: pods are given a node and stay pending, which is all that volumes need. The programs of the control
// plane are those of package cluster, built if they are not there yet; that is why the tests are not in package storage, which
// package cluster imports.
package live
