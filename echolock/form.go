package echolock

import (
	"bytes"
	"errors"
	"io"
	"math"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"
)

// formValues returns a form field's values without taking the body away from the handler. A body that is no form has
// none.
func formValues(c echo.Context, name string, limit int64) ([]string, error) {
	r := c.Request()
	media, parameters, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil {
		return nil, nil // such a body is no form
	}
	switch media {
	case echo.MIMEApplicationForm:
		if len(r.PostForm) > 0 { // somebody before us has parsed the form, and so the body is gone
			return r.PostForm[name], nil
		}
		body, err := PeekBody(c, limit)
		if err != nil {
			return nil, err
		}
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, malformed(name, "The form cannot be read.", err)
		}
		return values[name], nil
	case echo.MIMEMultipartForm:
		if r.MultipartForm != nil {
			return r.MultipartForm.Value[name], nil
		}
		body, err := PeekBody(c, limit)
		if err != nil {
			return nil, err
		}
		values, err := partValues(body, parameters["boundary"], name)
		if err != nil {
			return nil, malformed(name, "The form cannot be read.", err)
		}
		return values, nil
	}
	return nil, nil
}

// partValues reads the fields of that name; a file of that name is none.
func partValues(body []byte, boundary, name string) ([]string, error) {
	var values []string
	for reader := multipart.NewReader(bytes.NewReader(body), boundary); ; {
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		if part.FormName() != name || part.FileName() != "" {
			continue
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		values = append(values, string(value))
	}
}

// PeekBody reads the request's whole body into memory, at most limit bytes, and puts it back, so that it can be read again
// from its start: for a [Config.KeyFunc]. The bytes must not be changed.
//
// A larger body is an [*echo.HTTPError] with 413, one that cannot be read is one with 400; an error of echo's BodyLimit
// comes as it is.
func PeekBody(c echo.Context, limit int64) ([]byte, error) {
	r := c.Request()
	switch body := r.Body.(type) {
	case nil:
		return nil, nil
	case *peekedBody:
		if body.Len() == len(body.all) {
			if int64(len(body.all)) > limit {
				return nil, tooLarge(limit)
			}
			return body.all, nil
		}
	}
	if r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	var buffer bytes.Buffer
	buffer.Grow(int(min(max(r.ContentLength, 0), DefaultBodyLimit)) + bytes.MinRead)
	// To its end: only then net/http sees a client go.
	_, err := buffer.ReadFrom(io.LimitReader(r.Body, min(limit, math.MaxInt64-1)+1))
	var (
		answer *echo.HTTPError
		most   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &answer):
		return nil, answer
	case errors.As(err, &most):
		return nil, tooLarge(most.Limit)
	case err != nil:
		return nil, malformed("body", "The body could not be read.", err)
	case int64(buffer.Len()) > limit:
		return nil, tooLarge(limit)
	}
	r.Body = newPeekedBody(buffer.Bytes())
	return buffer.Bytes(), nil
}

// peekedBody is a body that was read and put back.
type peekedBody struct {
	*bytes.Reader
	all []byte
}

func newPeekedBody(all []byte) *peekedBody { return &peekedBody{bytes.NewReader(all), all} }

// Close implements [io.Closer]. The server closes the body that it gave.
func (*peekedBody) Close() error { return nil }
