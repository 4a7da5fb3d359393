package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// officialImage is what everybody with a registry gets.
const officialImage = "postgres:15-alpine"

const (
	pullLimit  = 2 * time.Minute  // long enough for 100 MB, short enough to give up on a dead network
	buildLimit = 15 * time.Minute // it takes about one, behind a slow mirror more
)

// cannotBuild is the exit status by which build.sh says that this machine lacks
// something it needs.
const cannotBuild = 3

// resolveImage finds the image to run, and whether a registry may be asked for
// others.
//
// The built image, once it is there, goes before another try to pull: a machine
// that needed it has no registry, and each test process would wait for that
// failure again. Removing the image makes the next run try the registry.
func resolveImage(ctx context.Context) (image string, registry bool, err error) {
	if image := os.Getenv(imageVariable); image != "" {
		return image, true, nil
	}
	if haveImage(ctx, hubName(officialImage)) {
		return officialImage, true, nil
	}
	built, tagErr := buildScript(ctx, "--tag")
	if tagErr == nil && haveImage(ctx, built) {
		return built, false, nil
	}
	pullErr := pullImage(ctx, hubName(officialImage))
	if pullErr == nil {
		return officialImage, true, nil
	}
	if tagErr != nil {
		return "", false, fmt.Errorf("%w (and %w)", tagErr, pullErr)
	}
	if built, err = buildScript(ctx); err != nil {
		return "", false, fmt.Errorf("%w (and %w)", err, pullErr)
	}

	return built, false, nil
}

func haveImage(ctx context.Context, image string) bool {
	_, err := docker(ctx, "image", "inspect", "--format", "{{.Id}}", image)

	return err == nil
}

func pullImage(ctx context.Context, image string) error {
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()

	if _, err := docker(ctx, "pull", "--quiet", image); err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}

	return nil
}

// hubName is the name under which testcontainers looks for an image of the Docker
// Hub, which companies like to mirror.
func hubName(image string) string {
	return path.Join(os.Getenv("TESTCONTAINERS_HUB_IMAGE_NAME_PREFIX"), image)
}

// buildScript runs build.sh and returns the tag it prints.
func buildScript(ctx context.Context, args ...string) (string, error) {
	script, err := findBuildScript()
	if err != nil {
		return "", err
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		return "", unavailable("no bash to build an image with")
	}

	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()

	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, shell, append([]string{script}, args...)...)
	cmd.Stdout = &stdout
	// Shown while it happens too (with -v): a minute of silence looks like a hang.
	cmd.Stderr = io.MultiWriter(&stderr, os.Stderr)
	// An interrupt lets the script remove what it has begun.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second

	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == cannotBuild {
		return "", unavailable("no image can be built: %s", strings.TrimSpace(stderr.String()))
	}
	if err != nil {
		return "", fmt.Errorf("build an image: %w\n%s", err, tail(stderr.String(), 40))
	}

	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")

	return lines[len(lines)-1], nil
}

// findBuildScript looks upwards from the directory of the package under test,
// which is where its tests run. The path of this source file would be no help in
// a build with -trimpath.
func findBuildScript() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		script := filepath.Join(dir, "postgres-image", "build.sh")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("postgres-image/build.sh is in no directory above %s", start)
		}
	}
}

// tail is the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")

	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
