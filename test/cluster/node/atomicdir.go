package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fileContent is one file of a volume that is filled from the API.
type fileContent struct {
	data []byte
	mode os.FileMode
}

// dataLink names the symbolic link that is switched to bring in new content.
const dataLink = "..data"

// writeAtomically makes files, by relative path, the content of dir: either all of the old content is visible or all of
// the new. Readers see links into a directory that itself is reached by one link, and that link is switched.
func writeAtomically(dir string, files map[string]fileContent, gid *int64) error {
	fresh, err := os.MkdirTemp(dir, "..content_")
	if err != nil {
		return fmt.Errorf("create content directory: %w", err)
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return fmt.Errorf("open content directory: %w", err)
	}
	for path, file := range files {
		if err := writeContent(filepath.Join(fresh, path), file, gid); err != nil {
			return err
		}
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read content link: %w", err)
	}
	if err := switchLink(dir, filepath.Base(fresh)); err != nil {
		return err
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
		return fmt.Errorf("remove old content: %w", err)
	}
	return nil
}

func writeContent(path string, file fileContent, gid *int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("create directory of %s: %w", path, err)
	}
	if err := os.WriteFile(path, file.data, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	mode := file.mode
	if gid != nil {
		mode |= 0o440
		if err := os.Lchown(path, -1, int(*gid)); err != nil {
			return fmt.Errorf("give %s to group %d: %w", path, *gid, err)
		}
	}
	if err := os.Chmod(path, mode); err != nil {
		return fmt.Errorf("set mode of %s: %w", path, err)
	}
	return nil
}

func switchLink(dir, target string) error {
	temporary := filepath.Join(dir, dataLink+"_tmp")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale link: %w", err)
	}
	if err := os.Symlink(target, temporary); err != nil {
		return fmt.Errorf("create content link: %w", err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, dataLink)); err != nil {
		return fmt.Errorf("switch content link: %w", err)
	}
	return nil
}

// linkNames makes the visible names of a volume: one link for each first path component, and none for those that went.
func linkNames(dir string, files map[string]fileContent) error {
	wanted := map[string]bool{}
	for path := range files {
		first, _, _ := strings.Cut(path, "/")
		wanted[first] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read volume: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "..") {
			continue
		}
		if wanted[name] {
			delete(wanted, name)
			continue
		}
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove %s from volume: %w", name, err)
		}
	}
	for name := range wanted {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("add %s to volume: %w", name, err)
		}
	}
	return nil
}
