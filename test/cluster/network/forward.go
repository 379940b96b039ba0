package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// dialTimeout bounds how long a connection waits for an endpoint that does not
// answer. It is as long as a client would wait that has a patience of its own.
const dialTimeout = 10 * time.Second

// forward carries one connection to an endpoint and returns when both
// directions have ended, or one was reset. The end of ctx resets it.
func forward(ctx context.Context, client *net.TCPConn, to netip.AddrPort) {
	dialer := net.Dialer{Timeout: dialTimeout}
	backend, err := dialer.DialTCP(ctx, "tcp4", netip.AddrPort{}, to)
	if err != nil {
		reset(client)
		return
	}
	stop := context.AfterFunc(ctx, func() {
		reset(client)
		reset(backend)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pipe(backend, client) })
	both.Go(func() { pipe(client, backend) })
	both.Wait()
	_ = client.Close()
	_ = backend.Close()
}

// pipe carries one direction. A side that has said all it has to say may still
// listen, so its end closes only this direction.
func pipe(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		reset(to)
		reset(from)
	}
}

// reset closes a connection so that its other side gets an error instead of an
// end of data.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
