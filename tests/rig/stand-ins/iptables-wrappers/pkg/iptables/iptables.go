// Package iptables stands in for the module of its name where the module proxy lacks it: a system without iptables, on which a
// kubelet makes no chains. Of what the module has, it declares what the kubelet names.
package iptables

import (
	"context"
	"time"
)

type (
	Chain    string
	Mode     string
	Protocol string
	Table    string

	RulePosition string
)

const (
	Append  RulePosition = "-A"
	Prepend RulePosition = "-I"

	ChainInput  Chain = "INPUT"
	ChainOutput Chain = "OUTPUT"

	TableFilter Table = "filter"
	TableMangle Table = "mangle"
	TableNAT    Table = "nat"

	ProtocolIPv4 Protocol = "IPv4"
	ProtocolIPv6 Protocol = "IPv6"

	UseInstalledMode Mode = ""
)

// Interface is what a kubelet calls where there are iptables.
type Interface interface {
	EnsureChain(ctx context.Context, table Table, chain Chain) (bool, error)
	EnsureRule(ctx context.Context, position RulePosition, table Table, chain Chain, words ...string) (bool, error)
	IsIPv6() bool
	Monitor(ctx context.Context, canary Chain, tables []Table, reload func(), interval time.Duration)
	Protocol() Protocol
}

// NewBestEffort returns nothing: there are no iptables.
func NewBestEffort(context.Context, Mode) map[Protocol]Interface { return nil }
