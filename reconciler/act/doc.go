// Package act performs exactly one plan.Step. It is the only writer of everything but status and events, and it decides nothing:
// what it writes stands in the step, or is the StatefulSet's own manifest.
//
// Every delete carries the UID and the resourceVersion that were seen; every patch of a foreign object carries its
// resourceVersion. That something is gone already, or there already, is an outcome and no error: the next pass looks.
package act
