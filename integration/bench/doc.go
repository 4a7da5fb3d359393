// Package bench measures what the library costs beside the same work written by hand, in the same run: each benchmark
// alternates short batches of both, so that a machine whose speed drifts drifts for both, and reports the median of
// the ratios. Nothing here is a test: figures are for docs/performance.md, and nobody's build fails by them.
package bench
