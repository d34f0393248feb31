package lab

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 4 << 20

// fetch asks an HTTP endpoint from inside a place (see Command); anything but status 200 is an error.
func (l *Lab) fetch(ctx context.Context, where string, address netip.AddrPort, path string) ([]byte, error) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, protocol, _ string) (net.Conn, error) {
			return l.Dial(ctx, where, protocol, address.String())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address.String()+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s%s in %s answers %s: %s", address, path, where, response.Status, bytes.TrimSpace(body))
	}
	return body, nil
}
