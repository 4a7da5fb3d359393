package main

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/rowlease/rowlease/locks"
	"github.com/rowlease/rowlease/locks/lockhttp"
)

// problems makes every error that comes out of a handler or a middleware an answer of one form (RFC 9457). The texts of
// Go's errors go to the log, never to the client.
func problems(logger *slog.Logger) echo.HTTPErrorHandler {
	return func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		if written := problemOf(c, err, logger).Write(c.Response(), c.Request()); written != nil {
			logger.Debug("answer lost", "error", written)
		}
	}
}

func problemOf(c echo.Context, err error, logger *slog.Logger) lockhttp.Problem {
	ctx := c.Request().Context()
	var answer *echo.HTTPError
	var problem lockhttp.Problem
	switch {
	case errors.As(err, &answer):
		if own, ok := answer.Message.(lockhttp.Problem); ok { // of the middleware, with the words it has
			return own
		}
		problem = plain(answer.Code)
		if detail, ok := answer.Message.(string); ok && detail != problem.Title {
			problem.Detail = detail
		}
	case leaseEnded(err):
		problem = plain(http.StatusServiceUnavailable)
		problem.Detail = "The request was stopped. Send it again with the same key."
		problem.RetryAfterSeconds = 1
	case errors.Is(err, errDatabase):
		logger.ErrorContext(ctx, "database failed", "error", err)
		problem = plain(http.StatusServiceUnavailable)
		problem.Detail = "The database is down or busy. Send the request again with the same key."
		problem.RetryAfterSeconds = 1
	case ctx.Err() != nil: // the client has gone, and will not see this
		problem = plain(http.StatusServiceUnavailable)
	default:
		logger.ErrorContext(ctx, "request failed", "error", err)
		problem = plain(http.StatusInternalServerError)
	}
	return problem
}

// leaseEnded reports whether the work was stopped because its lease was lost, or because the application stops.
func leaseEnded(err error) bool {
	return errors.Is(err, locks.ErrLost) || errors.Is(err, locks.ErrClosed) || errors.Is(err, errOvertaken)
}

// plain is the problem that says no more than its status.
func plain(status int) lockhttp.Problem {
	return lockhttp.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status}
}

// logRequests writes a line for every request.
func logRequests(logger *slog.Logger) echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		HandleError: true, // so that the status is that of the answer
		LogMethod:   true, LogURI: true, LogStatus: true, LogLatency: true, LogError: true,
		LogValuesFunc: func(c echo.Context, v middleware.RequestLoggerValues) error {
			level := slog.LevelInfo
			attributes := []slog.Attr{
				slog.String("method", v.Method), slog.String("uri", v.URI), slog.Int("status", v.Status), slog.Duration("latency", v.Latency),
			}
			if v.Status >= http.StatusInternalServerError {
				level = slog.LevelWarn
				attributes = append(attributes, slog.Any("error", v.Error))
			}
			logger.LogAttrs(c.Request().Context(), level, "request", attributes...)
			return nil
		},
	})
}
