package bigipsim

import "fmt"

// Start listens on Config.Address with TLS and returns the URL, such as https://127.0.0.1:40123. CAPEM is what a client has to trust. Tests may serve
// the Sim by themselves instead: it is an http.Handler.
func (s *Sim) Start() (string, error) {
	url, err := s.serving.Start(s.cfg.Address)
	if err != nil {
		return "", fmt.Errorf("bigipsim: %w", err)
	}
	return url, nil
}

// Close stops listening and drops every connection; what is configured stays.
func (s *Sim) Close() error { return s.serving.Close() }

// CAPEM returns the certificate of the authority that signed the server's.
func (s *Sim) CAPEM() []byte { return s.serving.CAPEM() }
