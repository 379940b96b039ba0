// Package store keeps snapshots as files in a directory, named as the real sidecar names them:
//
//	<home>/<container>/<prefix>/v2/Full-00000000-00000042-1764595200.gz
//	<home>/<container>/<prefix>/v2/Incr-00000043-00000057-1764595260.gz
//
// Modelled: provider Local, the name format with its revision ranges, the compression suffixes, the ".final" suffix, the
// JSON of a snapshot. Not modelled: object stores, immutability, chunks, the older v1 layout, a second store.
// The content of a full snapshot is etcd's own snapshot file; that of a delta is our own (see package snapshots).
package store
