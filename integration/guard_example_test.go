package integration_test

import (
	"os"
	osexec "os/exec"
	"testing"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// The guard example's own tests, with its worker processes on PostgreSQL: the late write of a process that was stopped
// past its lease is refused, and without the guard it does its damage.
func TestTheGuardExampleOnPostgres(t *testing.T) {
	t.Parallel()
	cmd := osexec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=20m", "./guard")
	cmd.Dir = "../docs/examples"
	cmd.Env = append(os.Environ(), "ROWLEASE_POSTGRES_DSN="+postgres.Shared(t).Database(t), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
