package lbsync

import "github.com/nplbridge/nplbridge/lbsync/internal/annotations"

// Vocabulary lists every annotation that users set, for the reference.
func Vocabulary() []annotations.Word { return annotations.Vocabulary() }

// Aliases lists the annotations of other controllers that are read, for the reference.
func Aliases() []annotations.Alias { return annotations.Aliases() }

// Kinds lists the kinds of load balancer that annotations can name.
func Kinds() []string { return annotations.Kinds() }
