package bench

import _ "embed"

//go:embed manifest.yaml
var manifest string
