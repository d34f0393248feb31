package schema

// The tables of fields are written with these.

func str(name string) Field                    { return Field{Name: name, Type: String} }
func text(name, value string) Field            { return Field{Name: name, Type: String, Default: value} }
func enum(name string, values ...string) Field { return Field{Name: name, Type: String, Enum: values} }
func flag(name string, value bool) Field       { return Field{Name: name, Type: Bool, Default: value} }
func boolean(name string) Field                { return Field{Name: name, Type: Bool} }
func integer(name string) Field                { return Field{Name: name, Type: Int} }
func number(name string, value int64) Field    { return Field{Name: name, Type: Int, Default: value} }
func ref(name, kind string) Field              { return Field{Name: name, Type: Ref, Kind: kind} }
func message(name string, fields ...Field) Field {
	return Field{Name: name, Type: Message, Fields: fields}
}
func free(name string) Field { return Field{Name: name, Type: Any} }

func many(f Field, limit int) Field { f.Repeated, f.MaxItems = true, limit; return f }
func required(f Field) Field        { f.Required = true; return f }
func fixed(f Field) Field           { f.Fixed = true; return f }
func readOnly(f Field) Field        { f.ReadOnly = true; return f }
func def(f Field, value any) Field  { f.Default = value; return f }
func since(f Field, major, minor, patch int) Field {
	f.Since = Version{major, minor, patch}
	return f
}
func until(f Field, major, minor, patch int) Field {
	f.Until = Version{major, minor, patch}
	return f
}
func within(f Field, low, high int64, special ...int64) Field {
	f.Range, f.Special = &[2]int64{low, high}, special
	return f
}

// frees are fields that are kept as they are given.
func frees(names ...string) []Field {
	out := make([]Field, len(names))
	for i, name := range names {
		out[i] = free(name)
	}
	return out
}

// address is an IpAddr.
func address(name string) Field {
	return message(name, required(str("addr")), required(enum("type", "V4", "V6", "DNS")))
}

// prefix is an IpAddrPrefix.
func prefix(name string) Field {
	return message(name, required(address("ip_addr")), required(within(integer("mask"), 0, 128)))
}

// markers are the labels of an object.
func markers() Field {
	return since(many(message("markers", required(str("key")), many(str("values"), 0)), 0), 20, 1, 5)
}

// owned are the fields that objects have which a cloud connector or an ingress controller makes.
func owned() []Field { return []Field{str("created_by"), str("cloud_config_cksum"), markers()} }

// object are the fields of every object. A name has 255 characters at most.
func object() []Field {
	name := required(str("name"))
	name.MaxLen = 255
	return []Field{
		name,
		readOnly(str("uuid")), readOnly(str("url")), readOnly(str("_last_modified")),
		fixed(ref("tenant_ref", "tenant")), str("description"), free("configpb_attributes"),
	}
}

func inCloud() Field { return fixed(ref("cloud_ref", "cloud")) }
