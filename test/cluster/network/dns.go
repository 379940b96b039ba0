package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/go-logr/logr"
	"github.com/miekg/dns"
)

const dnsPort = 53

// dnsServer answers over UDP and TCP.
type dnsServer struct {
	resolver resolver
	log      logr.Logger
	packets  *net.UDPConn
	streams  *net.TCPListener
}

func listenDNS(r resolver, log logr.Logger) (*dnsServer, error) {
	addr := netip.AddrPortFrom(DNSAddr, dnsPort)
	packets, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", err)
	}
	streams, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, fmt.Errorf("listen for DNS: %w", errors.Join(err, packets.Close()))
	}
	return &dnsServer{resolver: r, log: log, packets: packets, streams: streams}, nil
}

// run answers until ctx is done.
func (s *dnsServer) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		_ = s.packets.Close()
		_ = s.streams.Close()
	})
	defer stop()
	var both sync.WaitGroup
	for _, server := range []*dns.Server{
		{PacketConn: s.packets, Handler: s},
		{Listener: s.streams, Handler: s},
	} {
		both.Go(func() {
			if err := server.ActivateAndServe(); err != nil && ctx.Err() == nil {
				s.log.Error(err, "DNS stopped answering")
			}
		})
	}
	both.Wait()
}

// ServeDNS answers one request.
func (s *dnsServer) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	reply := s.resolver.reply(request)
	if _, isUDP := w.RemoteAddr().(*net.UDPAddr); isUDP {
		reply.Truncate(payloadSize(request))
	}
	if err := w.WriteMsg(reply); err != nil {
		s.log.V(1).Info("DNS answer not sent", "to", w.RemoteAddr(), "reason", err.Error())
	}
}

// payloadSize is what the client said that it can take in one packet.
func payloadSize(request *dns.Msg) int {
	if opt := request.IsEdns0(); opt != nil {
		return max(int(opt.UDPSize()), dns.MinMsgSize)
	}
	return dns.MinMsgSize
}
