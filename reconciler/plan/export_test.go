package plan

// Promises are the names of all promises.
func Promises() []string {
	names := make([]string, 0, len(promises))
	for _, p := range promises {
		names = append(names, p.name)
	}
	return names
}
