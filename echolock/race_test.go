//go:build race

package echolock_test

const raceDetector = true
