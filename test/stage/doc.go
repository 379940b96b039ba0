// Package stage is what the demo and the end-to-end tests play on: a local cluster with etcd-druid's stand-in, the real
// etcd-volumes deployed from deploy/, an Etcd, a writer that puts numbered keys through every member, a history of every
// object that a rollout can touch, and the judge that reads broken promises off that history.
//
//	func TestMain(m *testing.M) { stage.Enter(); os.Exit(m.Run()) }
//
//	s, err := stage.Open(ctx, stage.Options{})
//	defer s.Close()
//	err = s.CreateEtcd(ctx, stage.Etcd{Namespace: "shop", Name: "main", Class: "slow"})
//	w, err := s.Write(ctx, "shop", "main", 3)
//	...
//	broken := stage.Judge(s.History.Events(), "shop", "main", stage.SecondsAtMost)
//
// Nothing here decides anything of the product: the stage only looks, and asserts nothing. What it needs to know of the
// product it takes from the packages that users' tools would use too (webhook/volume, webhook/confirm, the API types).
package stage
