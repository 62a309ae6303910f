// kfake PORT FOLDER [SECRET]: one broker that speaks Kafka's protocol and keeps in FOLDER what it confirms, also when it is killed.
//
// It is franz-go's, which tests its client with it. What is here gives it a port, and three users if there is a SECRET, whose password that is:
// `plain`, `scram256` and `scram512`.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "kfake: %v\n", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return fmt.Errorf("it takes PORT FOLDER [SECRET]")
	}
	port, err := strconv.ParseUint(args[0], 10, 16)
	if err != nil {
		return fmt.Errorf("PORT is a number from 1 to 65535: %w", err)
	}
	options := []kfake.Opt{
		kfake.Ports(int(port)),
		// Written before it is confirmed, as Kafka does it; what outlives a power cut is not asked of it.
		kfake.DataDir(args[1]),
		// Tests have short sessions: who is killed is missed soon.
		kfake.GroupMinSessionTimeout(500*time.Millisecond),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	}
	if len(args) == 3 {
		options = append(options, kfake.EnableSASL(),
			kfake.Superuser("PLAIN", "plain", args[2]),
			kfake.Superuser("SCRAM-SHA-256", "scram256", args[2]),
			kfake.Superuser("SCRAM-SHA-512", "scram512", args[2]))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, os.Interrupt, syscall.SIGTERM)
	<-asked
	return nil
}
