package pgdriverwaker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The messages that a session which only asks and listens has to know. See the PostgreSQL manual, "Message Formats".
const (
	queryMessage     = 'Q'
	terminateMessage = 'X'

	dataRow              = 'D'
	errorResponse        = 'E'
	notificationResponse = 'A'
	readyForQuery        = 'Z'
)

// maxMessage is far above what the server sends here: a notification has at most 8000 bytes.
const maxMessage = 1 << 20

var errProtocol = errors.New("this is not PostgreSQL's protocol")

func newMessage(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	return append(b, body...)
}

// readMessage reads one message. It takes from the reader no byte more.
func readMessage(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[1:])) - 4
	if size < 0 || size > maxMessage {
		return 0, nil, fmt.Errorf("%w: a message of %d bytes", errProtocol, size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return head[0], body, nil
}

// notification is what somebody has sent.
type notification struct{ channel, payload string }

func parseNotification(body []byte) (notification, error) {
	if len(body) < 4 { // the sender's process comes first
		return notification{}, fmt.Errorf("%w: a notification of %d bytes", errProtocol, len(body))
	}
	channel, rest, ok := bytes.Cut(body[4:], []byte{0})
	payload, _, ended := bytes.Cut(rest, []byte{0})
	if !ok || !ended {
		return notification{}, fmt.Errorf("%w: a notification without its end", errProtocol)
	}
	return notification{channel: string(channel), payload: string(payload)}, nil
}

// parseRow returns the first column of a row, "" where that is null.
func parseRow(body []byte) (string, error) {
	if len(body) < 6 {
		return "", fmt.Errorf("%w: a row of %d bytes", errProtocol, len(body))
	}
	size := int32(binary.BigEndian.Uint32(body[2:]))
	if size < 0 {
		return "", nil
	}
	if int64(size) > int64(len(body)-6) {
		return "", fmt.Errorf("%w: a value longer than its row", errProtocol)
	}
	return string(body[6 : 6+size]), nil
}

// serverError is what the server has refused, in the driver's words; its own type cannot be made here.
func serverError(body []byte) error {
	fields := make(map[byte]string)
	for len(body) > 1 {
		text, rest, _ := bytes.Cut(body[1:], []byte{0})
		fields[body[0]] = string(text)
		body = rest
	}
	return fmt.Errorf("%s: %s (SQLSTATE=%s)", fields['S'], fields['M'], fields['C'])
}
