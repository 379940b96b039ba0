// Package args parses the command lines that druid renders for the real images.
package args

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// Parse parses args into flags. A flag that the real program knows and ours does not need is
// logged and left out, so that a pod rendered for the real images starts unchanged.
func Parse(flags *pflag.FlagSet, args []string, log *zap.Logger) error {
	known := make([]string, 0, len(args))
	for _, arg := range args {
		name, isFlag := flagName(arg)
		if isFlag && flags.Lookup(name) == nil {
			log.Info("ignoring a flag that is not modelled", zap.String("flag", arg))
			continue
		}
		known = append(known, arg)
	}
	if err := flags.Parse(known); err != nil {
		return fmt.Errorf("parse flags of %s: %w", flags.Name(), err)
	}
	return nil
}

// flagName returns the name in --name or --name=value.
func flagName(arg string) (string, bool) {
	rest, isFlag := strings.CutPrefix(arg, "--")
	if !isFlag || rest == "" {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "=")
	return name, true
}
