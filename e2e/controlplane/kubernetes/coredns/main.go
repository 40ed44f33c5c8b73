// CoreDNS with the plugins that the clusters of the tests need: names of Services and pods, read from the API server. Upstream's
// program also has plugins for forwarding, caching, metrics, DNSSEC and clouds, which take minutes to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
)

// main replaces upstream's list of plugins. A query passes them in this order.
func main() {
	dnsserver.Directives = []string{"bind", "errors", "log", "kubernetes"}
	coremain.Run()
}
