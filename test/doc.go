// Package test is where the product is proven. It holds no code: the suites and the world that they run in are its
// sub-packages, and nothing of the product imports them.
//
// What proves what, from the small to the large:
//
//   - Beside the code, in _test.go files: rules, plans and texts, on values alone. The chain of each corridor is tested composed; user
//     texts are golden files.
//   - [github.com/etcd-volumes/etcd-volumes/test/house]: the import rules fire, and the program that is shipped holds nothing of
//     the tests.
//   - test/druid and test/sidecar: the stand-ins for etcd-druid and its backup sidecar behave as the real ones were seen
//     to; what is not modelled stands in their doc.go.
//   - test/cluster: a real control plane, real etcd processes, nodes whose pods are processes; its own tests prove that
//     pods, volumes, Services and DNS work as workloads expect.
//   - test/e2e: the operator, installed from deploy/ as users do it, on that cluster: refusal, confirmation, rollout, crashes at each
//     step, and each trouble that ends in a message. Every acknowledged write is counted, before and after.
//   - test/demo: the main job as a story, for people. It ends with the same proof.
//
// Building blocks: test/fixture makes minimal valid objects, test/golden compares texts with files, test/stage sets the scene
// for e2e and demo: cluster, stand-ins, operator and a writer.
package test
