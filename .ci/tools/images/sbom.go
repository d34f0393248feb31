package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"fmt"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials lists, in CycloneDX, what is linked into a program: Go itself and the modules, as the linker wrote them into it.
func billOfMaterials(program string, i image, o options, at commit) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("read what %s was built from: %w", program, err)
	}
	main := component(cyclonedx.ComponentTypeApplication, info.Main.Path+strings.TrimPrefix(i.pkg, "."), o.version, "")
	main.Name = i.name
	components := []cyclonedx.Component{component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, component(cyclonedx.ComponentTypeLibrary, module.Path, module.Version, module.Sum))
	}
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return cmp.Compare(a.PackageURL, b.PackageURL) })

	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: at.time.Format(time.RFC3339), Component: &main,
		Properties: &[]cyclonedx.Property{{Name: "nplbridge:platform", Value: setting(info, "GOOS") + "/" + setting(info, "GOARCH")}},
	}
	bom.Components = &components
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return out.Bytes(), err
}

// component is a Go module by its package URL, https://github.com/package-url/purl-spec. sum is its line in go.sum, "h1:...".
func component(kind cyclonedx.ComponentType, module, version, sum string) cyclonedx.Component {
	url := "pkg:golang/" + path.Clean(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
	c := cyclonedx.Component{BOMRef: url, Type: kind, Name: module, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cyclonedx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

func setting(info *debug.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
