package client

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

// stat is one value of statistics: a text or a number.
type stat struct {
	Description string `json:"description"`
	Value       int64  `json:"value"`
}

// Stats are the values about one object.
type Stats map[string]stat

// Text returns a value that is a text, or "".
func (s Stats) Text(name string) string { return s[name].Description }

// Number returns a value that is a number; ok is false when it is not there.
func (s Stats) Number(name string) (n int64, ok bool) {
	v, ok := s[name]
	return v.Value, ok
}

// MemberStats returns the statistics of a pool's members.
func (c *Client) MemberStats(ctx context.Context, pool string) ([]Stats, error) {
	body, err := c.Get(ctx, Members(pool)+"/stats")
	if err != nil {
		return nil, err
	}
	stats, err := decodeStats(body)
	if err != nil {
		return nil, unreadable("statistics of "+pool, err)
	}
	return stats, nil
}

// decodeStats reads the entries of a statistics answer, each of which has entries of its own, in the order of their links.
func decodeStats(body []byte) ([]Stats, error) {
	var answer struct {
		Entries map[string]struct {
			Nested struct {
				Entries map[string]json.RawMessage `json:"entries"`
			} `json:"nestedStats"`
		} `json:"entries"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	var out []Stats
	for _, link := range slices.Sorted(maps.Keys(answer.Entries)) {
		s := Stats{}
		for name, raw := range answer.Entries[link].Nested.Entries {
			var v stat
			if json.Unmarshal(raw, &v) == nil { // what has another form, such as details nested deeper, is not asked for
				s[name] = v
			}
		}
		out = append(out, s)
	}
	return out, nil
}
