// Command webhook adds LXCFS files to pods that opt in, as the lxcfs guard of Durward does.
//
// It is written as the documentation of controller-runtime teaches: a Defaulter for typed pods, served by its webhook server. Where
// the guard looks for conflicts in detail, this program has the simple rule. It reads no namespace, which the guard does.
package main

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	optIn  = "durward.dev/lxcfs"
	status = "durward.dev/lxcfs-status"
	lxcfs  = "/var/lib/lxcfs"
)

var files = []string{"cpuinfo", "meminfo", "diskstats", "stat", "swaps", "uptime"}

// injector adds the files to pods.
type injector struct{}

var _ admission.Defaulter[*corev1.Pod] = &injector{}

// Default implements admission.Defaulter.
func (*injector) Default(_ context.Context, pod *corev1.Pod) error {
	if pod.Annotations[optIn] != "enabled" || !canShowFiles(&pod.Spec) {
		return nil
	}
	for _, file := range files {
		addVolume(&pod.Spec, file)
	}
	shown := []string{}
	for index := range pod.Spec.Containers {
		container := &pod.Spec.Containers[index]
		for _, file := range files {
			addMount(container, file)
		}
		shown = append(shown, container.Name+"="+strings.Join(files, ","))
	}
	pod.Annotations[status] = strings.Join(shown, "; ")
	return nil
}

// canShowFiles returns whether LXCFS would show the limits of the container.
func canShowFiles(spec *corev1.PodSpec) bool {
	isTrue := func(value *bool) bool { return value != nil && *value }
	isFalse := func(value *bool) bool { return value != nil && !*value }
	isWindows := spec.OS != nil && spec.OS.Name == corev1.Windows
	return !spec.HostPID && !isTrue(spec.ShareProcessNamespace) && !isFalse(spec.HostUsers) && !isWindows
}

func addVolume(spec *corev1.PodSpec, file string) {
	name := "lxcfs-" + file
	if slices.ContainsFunc(spec.Volumes, func(volume corev1.Volume) bool { return volume.Name == name }) {
		return
	}
	kind := corev1.HostPathFile
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: name,
		VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: lxcfs + "/proc/" + file, Type: &kind},
		},
	})
}

func addMount(container *corev1.Container, file string) {
	path := "/proc/" + file
	if slices.ContainsFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.MountPath == path }) {
		return
	}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
		Name: "lxcfs-" + file, MountPath: path, ReadOnly: true,
	})
}

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 9443, "port to listen on")
	certificates := flag.String("cert-dir", "", "directory with tls.crt and tls.key")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	log := ctrl.Log.WithName("setup")
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		log.Error(err, "unable to build the scheme")
		os.Exit(1)
	}
	server := webhook.NewServer(webhook.Options{Host: *host, Port: *port, CertDir: *certificates})
	server.Register("/lxcfs", admission.WithDefaulter(scheme, &injector{}))
	if err := server.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Error(err, "unable to serve")
		os.Exit(1)
	}
}
