// Package house proves the rules of the house: who may import whom, and what the shipped program must not hold.
//
// The table in this package's test is the one that people read; .golangci.yml is what the linter reads. The test seeds every import
// that the table speaks of, allowed or not, into a skeleton of the house, lets the real linter judge it, and compares.
//
// # Decisions
//
// 2026-12-01: each package is imported by way of an empty package below it. The seeds of all pairs then fit in one
// module without import cycles, and the linter, which matches by prefix, judges them alike.
package house
