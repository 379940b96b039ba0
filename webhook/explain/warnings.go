package explain

import (
	"fmt"

	"github.com/etcd-volumes/etcd-volumes/webhook/verdict"
)

// warningWidth is the longest warning that clients are recommended to be sent, in characters.
const warningWidth = 120

// Warnings are one line each: what is notable, and with an allowed change its plan in short.
func Warnings(v verdict.Verdict) []string {
	var lines []string
	add := func(format string, args ...any) {
		lines = append(lines, clip(clean("etcd-volumes: "+fmt.Sprintf(format, args...)), warningWidth))
	}
	if v.Outcome == verdict.Allow && v.Side == verdict.Validating {
		planned(v, add)
	}
	for _, w := range v.Warnings {
		warned(w, add)
	}
	return lines
}

func planned(v verdict.Verdict, add func(string, ...any)) {
	steps := v.Plan.Steps
	if len(steps) == 0 {
		add("confirmed with %s: all volumes are as wanted already; only the StatefulSet is made anew", v.Confirmation.Token)
	} else {
		add("confirmed with %s: %d %s replaced, one member at a time, in this order:",
			v.Confirmation.Token, len(steps), plural(len(steps), "volume is", "volumes are"))
	}
	for i, s := range steps[:min(len(steps), most)] {
		add("%d. %s%s: volume %s", i+1, clip(s.Member, 40), role(s), clip(short(s), 42))
	}
	if more := len(steps) - most; more > 0 {
		add("and %d more", more)
	}
	add("follow: kubectl -n %s get volumerollouts %s-v%d", v.Namespace, v.Name, v.Confirmation.Generation)
}

func short(s verdict.Step) string {
	if s.Claim.Volume == "" {
		return "of claim " + s.Claim.Name
	}
	return s.Claim.Volume
}

func warned(w verdict.Warning, add func(string, ...any)) {
	switch w.Kind {
	case verdict.BindsImmediately:
		add("class %s binds at once: a new volume may land in a zone where its member can not run", clip(w.Subject, 20))
	case verdict.DruidKept:
		add("%s was set already: it is kept after the rollout", w.Subject)
	case verdict.Supersedes:
		add("supersedes rollout %s (done: %s); it finishes the member in flight first", clip(w.Subject, 36), progress(w.Detail))
	case verdict.CRDForbids:
		add("the CRD of etcd-druid forbids this change of %s: it can not pass", w.Subject)
		add("the way out: etcd-volumes relax-crd (or kubectl apply -f deploy/relax-crd.yaml). It removes this rule:")
		add("%s", w.Detail)
	case verdict.CRDUnknown:
		add("whether the CRD forbids this change is not known: %s", w.Detail)
	case verdict.MarksRestored:
		add("annotation %s is kept: it is our record", w.Subject)
	case verdict.ConfirmationIdle:
		add("nothing is destroyed by this change; confirmation %s is not used", clip(w.Subject, 30))
	}
}

func progress(p string) string {
	if p == "" {
		return "nothing"
	}
	return p
}
