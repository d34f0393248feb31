// Package providertest holds what every provider is judged by: a strict in-memory load balancer that refuses what real
// ones refuse, and a conformance suite that runs against any provider (see Run).
package providertest
