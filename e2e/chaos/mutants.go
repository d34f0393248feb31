package chaos

import (
	"context"
	"io"
)

// CheckMutants x.
func CheckMutants(_ context.Context, _ io.Writer) error { return nil }
