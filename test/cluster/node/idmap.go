package node

import (
	"fmt"
	"os"
	"strings"
)

// idMap tells which users or groups this user namespace knows.
type idMap []idRange

type idRange struct{ first, count int64 }

// readIDMap reads a file like /proc/self/uid_map.
func readIDMap(path string) (idMap, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ID map: %w", err)
	}
	return parseIDMap(string(raw))
}

func parseIDMap(text string) (idMap, error) {
	var m idMap
	for line := range strings.Lines(text) {
		var inside, outside, count int64
		if _, err := fmt.Sscan(line, &inside, &outside, &count); err != nil {
			return nil, fmt.Errorf("parse ID map %q: %w", line, err)
		}
		m = append(m, idRange{first: inside, count: count})
	}
	return m, nil
}

func (m idMap) has(id int64) bool {
	for _, r := range m {
		if id >= r.first && id < r.first+r.count {
			return true
		}
	}
	return false
}

// orRoot returns the ID if this user namespace knows it, else 0.
func (m idMap) orRoot(id int64) int64 {
	if m.has(id) {
		return id
	}
	return 0
}

// single tells whether there is one ID only.
func (m idMap) single() bool {
	return len(m) == 1 && m[0].count == 1
}
