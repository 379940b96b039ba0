package change

import "github.com/etcd-volumes/etcd-volumes/webhook/volume"

// Between returns what differs in effect between the two specs.
func Between(before, after volume.Spec) Set {
	s := Set{Before: before, After: after}
	// In the order of the fields' paths, so that the result is sorted.
	s.add(capacity(before, after))
	s.add(class(before, after))
	s.add(template(before, after))
	return s
}

func (s *Set) add(c *Change) {
	if c != nil {
		s.Changes = append(s.Changes, *c)
	}
}

func capacity(before, after volume.Spec) *Change {
	c := &Change{Field: StorageCapacity, From: before.Capacity.String(), To: after.Capacity.String()}
	switch after.Capacity.Cmp(before.Capacity) {
	case 1:
		c.Kind = Grow
	case -1:
		c.Kind = Shrink
	default:
		return nil
	}
	return c
}

func class(before, after volume.Spec) *Change {
	if before.Class == after.Class {
		return nil
	}
	return &Change{Kind: Reclass, Field: StorageClass, From: before.Class, To: after.Class}
}

func template(before, after volume.Spec) *Change {
	if before.Template == after.Template {
		return nil
	}
	return &Change{Kind: Retemplate, Field: VolumeClaimTemplate, From: before.Template, To: after.Template}
}
