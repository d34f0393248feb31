package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nplbridge/nplbridge/agent/npl"
	"github.com/nplbridge/nplbridge/e2e/chaos/ledger"
	"github.com/nplbridge/nplbridge/e2e/echo"
)

// What clients do.
const (
	pause       = 20 * time.Millisecond // between two requests of a client
	patience    = 5 * time.Second       // for an answer
	udpPatience = 4 * time.Second       // one lost datagram fails for so long, which every budget of UDP has to contain
	// connectionAge is how old a client lets a TCP connection of its own protocol become, and a UDP flow. It is less than preStop lets a Pod
	// go on: the protocol has no way to say that a server is about to leave.
	connectionAge = time.Second
)

// The kinds of client.
const (
	httpKept  = "HTTP, kept connections"
	httpNew   = "HTTP, new connections"
	tcpLines  = "TCP"
	udpDirect = "UDP, straight to node ports"
	udpAvi    = "UDP through Avi"
	udpBigIP  = "UDP through BIG-IP"
)

// client is one that asks again and again until the run ends.
type client struct {
	site    *site
	kind    string
	service string
	port    string // of the Service
	ask     func(context.Context, *client) ledger.Request
	http    *http.Client
	conn    net.Conn
	lines   *bufio.Reader
	opened  time.Time
	turn    int
	began   atomic.Int64 // when the request under way was begun, in nanoseconds; 0 between two
}

// clients are all of a run, and the kinds of which none may be without an answer.
func (s *site) clients() (all []*client, kinds []string) {
	add := func(kind, service, port string, ask func(context.Context, *client) ledger.Request) {
		all = append(all, &client{site: s, kind: kind, service: service, port: port, ask: ask})
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, service := range []string{"web", "api", "color"} {
		add(httpKept, service, "http", askHTTP)
	}
	for _, service := range []string{"web", "api"} {
		add(httpNew, service, "http", askHTTP)
		add(tcpLines, service, "tcp", askLine)
	}
	add(udpDirect, "dns", "", askDirect)
	add(udpAvi, "dns-avi", "udp", askDatagram)
	add(udpBigIP, "dns-bigip", "udp", askDatagram)
	return all, kinds
}

// startClients lets all clients ask until stop, which waits for their last requests.
func (s *site) startClients(ctx context.Context) (kinds []string, stop func()) {
	running, cancel := context.WithCancel(ctx)
	all, kinds := s.clients()
	s.asking = all
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() { c.run(running) })
	}
	return kinds, func() { cancel(); group.Wait() }
}

// ended waits until every request that was begun before a time has ended, one way or the other.
func (s *site) ended(ctx context.Context, before time.Time) error {
	under := func(c *client) bool {
		began := c.began.Load()
		return began != 0 && began < before.UnixNano()
	}
	for slices.ContainsFunc(s.asking, under) {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) run(ctx context.Context) {
	if c.kind == httpKept || c.kind == httpNew {
		transport := &http.Transport{DialContext: c.dialContext, DisableKeepAlives: c.kind == httpNew, MaxIdleConnsPerHost: 1}
		defer transport.CloseIdleConnections()
		c.http = &http.Client{Transport: transport, Timeout: patience}
	}
	defer c.hangUp()
	for tick := time.NewTicker(pause); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.began.Store(time.Now().UnixNano())
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		if r := c.ask(asking, c); r.Target != "" {
			r.Kind, r.Service = c.kind, c.service
			c.site.tally.Add(r)
		}
		cancel()
		c.began.Store(0)
	}
}

// opened is a connection that knows its age.
type openedConn struct {
	net.Conn
	at time.Time
}

func (c *client) dialContext(ctx context.Context, network, address string) (net.Conn, error) {
	at := time.Now()
	conn, err := c.site.Lab.Dial(ctx, "client", network, address)
	if err != nil {
		return nil, err
	}
	return &openedConn{conn, at}, nil
}

func (c *client) hangUp() {
	if c.conn != nil {
		c.conn.Close() //nolint:errcheck // the client is done with it
		c.conn = nil
	}
}

// done fills in what came of a request.
func done(r ledger.Request, answer []byte, err error) ledger.Request {
	r.Ended = time.Now()
	var reply echo.Reply
	if err == nil {
		err = json.Unmarshal(answer, &reply)
	}
	if err == nil && reply.UID == "" {
		err = fmt.Errorf("the answer names no Pod: %s", answer)
	}
	if err != nil {
		r.Err = err.Error()
	}
	r.UID = reply.UID
	return r
}

func askHTTP(ctx context.Context, c *client) ledger.Request {
	target := c.site.watch.address(c.service, c.port)
	if target == "" {
		return ledger.Request{}
	}
	r := ledger.Request{Target: target, Sent: time.Now()}
	r.Opened = r.Sent
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if conn, is := info.Conn.(*openedConn); is {
			r.Opened = conn.at
		}
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/", nil)
	if err != nil {
		return done(r, nil, err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return done(r, nil, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return done(r, answer, err)
}

// askLine sends a line on a connection that it keeps for a while.
func askLine(ctx context.Context, c *client) ledger.Request {
	target := c.site.watch.address(c.service, c.port)
	if target == "" {
		return ledger.Request{}
	}
	return c.converse(ctx, "tcp", target, target, patience)
}

// askDatagram sends a datagram of a flow that it keeps for a while.
func askDatagram(ctx context.Context, c *client) ledger.Request {
	target := c.site.watch.address(c.service, c.port)
	if target == "" {
		return ledger.Request{}
	}
	return c.converse(ctx, "udp", target, target, udpPatience)
}

// askDirect sends a datagram to the node port of one Pod after the other, each from a new socket.
func askDirect(ctx context.Context, c *client) ledger.Request {
	pods := c.site.watch.published(c.service, npl.UDP, 9090)
	if len(pods) == 0 {
		return ledger.Request{}
	}
	uids := make([]string, 0, len(pods))
	for uid := range pods {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	c.turn++
	uid := uids[c.turn%len(uids)]
	c.hangUp()
	r := c.converse(ctx, "udp", pods[uid].String(), uid, udpPatience)
	if r.Err == "" && r.UID != uid {
		c.site.watch.violate("I3: node port %v is published by Pod %s, and Pod %s answered", pods[uid], uid, r.UID)
	}
	return r
}

func (c *client) converse(ctx context.Context, network, address, target string, patience time.Duration) ledger.Request {
	r := ledger.Request{Target: target, Sent: time.Now()}
	if c.conn != nil && (time.Since(c.opened) > connectionAge || c.conn.RemoteAddr().String() != address) {
		c.hangUp()
	}
	var answer []byte
	err := func() (err error) {
		if c.conn == nil {
			c.opened = time.Now()
			if c.conn, err = c.site.Lab.Dial(ctx, "client", network, address); err != nil {
				c.conn = nil
				return err
			}
			c.lines = bufio.NewReader(c.conn)
		}
		if err = c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err = c.conn.Write([]byte("hello\n")); err != nil {
			return err
		}
		answer, err = c.lines.ReadBytes('\n')
		return err
	}()
	r.Opened = c.opened
	if err != nil {
		c.hangUp()
	}
	return done(r, answer, err)
}
