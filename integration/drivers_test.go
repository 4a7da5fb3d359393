package integration_test

import (
	"testing"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// forEachDriver runs the test once for each driver, on a database of its own.
func forEachDriver(t *testing.T, test func(t *testing.T, driver, dsn string)) {
	t.Helper()
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver, postgres.Shared(t).Database(t))
		})
	}
}
