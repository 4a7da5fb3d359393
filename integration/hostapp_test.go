package integration_test

import (
	"os"
	osexec "os/exec"
	"testing"

	"github.com/rowlease/rowlease/integration/internal/postgres"
)

// The example application's own tests, with its processes on PostgreSQL: the scenario of the README, kill -9 inside a
// handler (the next one gets in after the TTL, not before), SIGTERM, SIGSTOP, every refusal.
func TestTheExampleApplicationOnPostgres(t *testing.T) {
	cmd := osexec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=20m", "./hostapp")
	cmd.Dir = "../docs/examples"
	cmd.Env = append(os.Environ(), "ROWLEASE_POSTGRES_DSN="+postgres.Shared(t).Database(t), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
