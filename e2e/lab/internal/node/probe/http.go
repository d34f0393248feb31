package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxBody bounds what is read of an answer, in bytes.
const maxBody = 10 << 10

func (t Target) httpGet(ctx context.Context, action *corev1.HTTPGetAction) error {
	address, err := t.address(action.Host, action.Port)
	if err != nil {
		return err
	}
	// The path may carry a query, so it is parsed rather than escaped.
	target, err := url.Parse("/" + strings.TrimPrefix(action.Path, "/"))
	if err != nil {
		return fmt.Errorf("path %q: %w", action.Path, err)
	}
	target.Scheme, target.Host = "http", address
	if action.Scheme != "" {
		target.Scheme = strings.ToLower(string(action.Scheme))
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "kube-probe/1.36")
	request.Header.Set("Accept", "*/*")
	for _, h := range action.HTTPHeaders {
		request.Header.Set(h.Name, h.Value)
		if strings.EqualFold(h.Name, "Host") {
			request.Host = h.Value
		}
	}
	response, err := t.client(address).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() //nolint:errcheck // read as far as it matters
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return fmt.Errorf("GET %s: read the answer: %w", target, err)
	}
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("GET %s: HTTP status %d: %s", target, response.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

// client makes one request on a connection of its own, as kubelets do: what is to be known is whether the server still
// accepts connections. A certificate is not verified. A redirect to elsewhere is an answer in itself.
func (t Target) client(address string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:       t.Dial,
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the API documents for HTTPS probes
		},
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if next.URL.Host != address {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}
