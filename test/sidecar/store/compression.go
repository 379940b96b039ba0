package store

import (
	"compress/gzip"
	"compress/lzw"
	"compress/zlib"
	"fmt"
	"io"
)

// Compression is a policy of the real sidecar: "" (none), gzip, zlib or lzw.
type Compression string

const (
	none     Compression = ""
	gzipped  Compression = "gzip"
	zlibbed  Compression = "zlib"
	lzwed    Compression = "lzw"
	lzwWidth             = 8
)

var suffixes = map[Compression]string{none: "", gzipped: ".gz", zlibbed: ".zlib", lzwed: ".Z"}

// ParseCompression checks a policy name; with enabled unset the policy does not matter.
func ParseCompression(enabled bool, policy string) (Compression, error) {
	if !enabled {
		return none, nil
	}
	c := Compression(policy)
	if _, known := suffixes[c]; !known || c == none {
		return none, fmt.Errorf("compression policy %q is not supported", policy)
	}
	return c, nil
}

// Suffix returns what the policy appends to a file name.
func (c Compression) Suffix() string { return suffixes[c] }

func (c Compression) writer(w io.Writer) io.WriteCloser {
	switch c {
	case gzipped:
		return gzip.NewWriter(w)
	case zlibbed:
		return zlib.NewWriter(w)
	case lzwed:
		return lzw.NewWriter(w, lzw.LSB, lzwWidth)
	case none:
	}
	return nopWriteCloser{w}
}

func reader(suffix string, r io.Reader) (io.ReadCloser, error) {
	switch suffix {
	case "":
		return io.NopCloser(r), nil
	case gzipped.Suffix():
		return gzip.NewReader(r)
	case zlibbed.Suffix():
		return zlib.NewReader(r)
	case lzwed.Suffix():
		return lzw.NewReader(r, lzw.LSB, lzwWidth), nil
	default:
		return nil, fmt.Errorf("unknown compression suffix %q", suffix)
	}
}

type nopWriteCloser struct{ io.Writer }

// Close does nothing: the file below is closed by who opened it.
func (nopWriteCloser) Close() error { return nil }
