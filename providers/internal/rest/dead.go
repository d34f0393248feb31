package rest

import (
	"net"
	"time"
)

// A server may take a minute to answer, while the computer that it runs on acknowledges packets at once. So one that is gone is found out by the
// connection, long before the time for an answer is over.
const (
	connectLimit = 5 * time.Second
	deadAfter    = 10 * time.Second // without an acknowledgement of what was sent
	probeEvery   = 5 * time.Second  // while nothing is sent
)

func newDialer() net.Dialer {
	return net.Dialer{
		Timeout: connectLimit, Control: giveUpOnDead,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: probeEvery, Interval: probeEvery, Count: int(deadAfter / probeEvery)},
	}
}
