// CoreDNS with nothing but what a cluster of tests asks of it: names of Services and pods, answered from the API
// server. Everything that upstream's own program brings beside that (forwarding, caching, metrics, DNSSEC, clouds)
// would be built for minutes and never be called.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
)

// main names the plugins in the order in which a query passes them, which upstream's own list would do otherwise,
// and hands over.
func main() {
	dnsserver.Directives = []string{"bind", "errors", "log", "kubernetes"}
	coremain.Run()
}
