package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nplbridge/nplbridge/providers"
)

// ErrForeign says that a file was not written by this package.
var ErrForeign = errors.New("not a file of nplbridge")

// Parse reads what Render wrote. It is strict where ownership or identity is at stake and ignores all other lines:
// those are compared as text (see SameStructure).
func Parse(text []byte) (File, error) {
	var f File
	headed := false
	number := 0
	for raw := range bytes.Lines(text) {
		number++
		line := strings.TrimRight(string(raw), "\r\n")
		var err error
		if rest, ok := strings.CutPrefix(line, headMark); ok && !headed {
			headed = true
			err = f.parseHead(rest)
		} else if rest, ok := strings.CutPrefix(line, serviceMark); ok && headed {
			err = f.parseService(rest)
		} else if rest, ok := strings.CutPrefix(line, openMark); ok && headed {
			err = f.parseOpen(rest)
		} else if rest, ok := strings.CutPrefix(line, spareMark); ok && headed {
			err = f.parseSpare(rest)
		} else if rest, ok := strings.CutPrefix(line, serverMark); ok && len(f.Services) > 0 {
			err = f.Services[len(f.Services)-1].parseServer(rest)
		}
		if err != nil {
			return File{}, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if !headed {
		return File{}, ErrForeign
	}
	for i := range f.Services {
		if spare := f.Services[i].Spare; spare != "" {
			if err := f.parseSpare(spare); err != nil {
				return File{}, err
			}
		}
		slices.SortFunc(f.Services[i].Servers, CompareServers)
	}
	slices.Sort(f.Spares)
	return f, nil
}

func (f *File) parseHead(text string) error {
	var head headLine
	if err := json.Unmarshal([]byte(text), &head); err != nil {
		return fmt.Errorf("head: %w", err)
	}
	if head.Layout != layout {
		return fmt.Errorf("layout %d, know only %d", head.Layout, layout)
	}
	f.Owner = providers.Owner{ClusterUID: head.ClusterUID, Instance: head.Instance}
	var err error
	f.Generation, err = ParseGeneration(head.Generation)
	return err
}

func (f *File) parseService(text string) error {
	var l serviceLine
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	s := Service{
		Key:  providers.Key{Namespace: l.Namespace, Service: l.Service, Port: l.Port, Protocol: l.Protocol},
		Pool: l.Pool, VIPs: l.VIPs, Port: l.Listen, Shared: l.Shared, Virtual: l.Virtual, Spare: l.Spare,
	}
	if s.Pool.Algorithm == "" {
		s.Pool.Algorithm = l.Algorithm
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("service %s: %w", s.Key, err)
	}
	if n := len(f.Services); n > 0 && f.Services[n-1].Key.Compare(s.Key) >= 0 {
		return fmt.Errorf("service %s is out of order", s.Key)
	}
	f.Services = append(f.Services, s)
	return nil
}

func (s *Service) parseServer(text string) error {
	fields := strings.Fields(text)
	if len(fields) < 6 || fields[2] != "id" || fields[4] != "weight" {
		return fmt.Errorf("server without address, id or weight: %.80q", text)
	}
	id, err := strconv.Atoi(fields[3])
	if err != nil || id < 1 || id > 1<<31-1 {
		return fmt.Errorf("server %.80q: bad id %.20q", fields[0], fields[3])
	}
	weight, err := strconv.Atoi(fields[5])
	if err != nil || weight < 1 || weight > 256 {
		return fmt.Errorf("server %.80q: bad weight %.20q", fields[0], fields[5])
	}
	address, err := netip.ParseAddrPort(fields[1])
	if err != nil {
		return fmt.Errorf("server %.80q: %w", fields[0], err)
	}
	s.Servers = append(s.Servers, Server{
		Name: strings.Clone(fields[0]), // without it the whole line stays in memory
		ID:   id, Address: address, Weight: weight, Drained: fields[len(fields)-1] == strings.TrimSpace(drainedMark),
	})
	return nil
}

// HasStructure reports whether text is what Render writes for f, servers aside.
func HasStructure(text []byte, f File, s Settings) bool {
	return bytes.Equal(withoutServers(text), Render(f.withoutServers(), s))
}

func withoutServers(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		if !bytes.HasPrefix(line, []byte(serverMark)) {
			out = append(out, line...)
		}
	}
	return out
}

// KeyAtLine returns the Service that line number n of a text by Render belongs to, counted from 1; ok is false for
// the lines before the first Service. HAProxy's complaints name lines.
func KeyAtLine(text []byte, n int) (key providers.Key, ok bool) {
	var f File
	number := 0
	for raw := range bytes.Lines(text) {
		if number++; number > n {
			break
		}
		if rest, found := strings.CutPrefix(strings.TrimRight(string(raw), "\n"), serviceMark); found {
			_ = f.parseService(rest)
		}
	}
	if len(f.Services) == 0 {
		return providers.Key{}, false
	}
	return f.Services[len(f.Services)-1].Key, true
}
