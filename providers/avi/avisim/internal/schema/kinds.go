package schema

import "slices"

// Kinds returns every kind of object that is modelled, by its name in URLs. The caller may not change them.
func Kinds() map[string]*Kind {
	all := []*Kind{
		pool(), poolGroup(), virtualService(), vsVip(), l4PolicySet(), healthMonitor(),
		{Name: "networkprofile", Type: "NetworkProfile", Resource: "PERMISSION_NETWORKPROFILE", Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{required(free("profile")), flag("connection_mirror", false), markers()})},
		{Name: "applicationprofile", Type: "ApplicationProfile", Resource: "PERMISSION_APPLICATIONPROFILE", Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{fixed(required(str("type"))), flag("preserve_client_ip", false), str("created_by"), markers()})},
		{Name: "applicationpersistenceprofile", Type: "ApplicationPersistenceProfile", Resource: "PERMISSION_APPLICATIONPERSISTENCEPROFILE", Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{
				fixed(required(str("persistence_type"))), text("server_hm_down_recovery", "HM_DOWN_PICK_NEW_SERVER"), markers(),
				message("ip_persistence_profile", within(integer("ip_persistent_timeout"), 1, 720), within(number("ip_mask", 32), 0, 128)),
			})},
		{Name: "cloud", Type: "Cloud", Resource: "PERMISSION_CLOUD", Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{text("vtype", "CLOUD_NONE")})},
		{Name: "tenant", Type: "Tenant", Resource: "PERMISSION_TENANT", Shared: true, Open: true, Fields: object()},
		network(),
		{Name: "vrfcontext", Type: "VrfContext", Resource: "PERMISSION_VRFCONTEXT", InCloud: true, Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{inCloud(), flag("system_default", false), free("static_routes"), markers()})},
		{Name: "serviceenginegroup", Type: "ServiceEngineGroup", Resource: "PERMISSION_SERVICEENGINEGROUP", InCloud: true, Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{inCloud(), number("max_se", 10), number("max_vs_per_se", 10), markers()})},
		{Name: "ipamdnsproviderprofile", Type: "IpamDnsProviderProfile", Resource: "PERMISSION_IPAMDNSPROVIDERPROFILE", Shared: true, Open: true,
			Fields: slices.Concat(object(), []Field{required(str("type")), markers()})},
	}
	out := make(map[string]*Kind, len(all))
	for _, k := range all {
		out[k.Name] = k
	}
	return out
}

func pool() *Kind {
	return &Kind{Name: "pool", Type: "Pool", Resource: "PERMISSION_POOL", InCloud: true, Fields: slices.Concat(object(), owned(), []Field{
		inCloud(), fixed(ref("vrf_ref", "vrfcontext")),
		within(number("default_server_port", 80), 1, 65535),
		many(server(), 5000),
		def(enum("lb_algorithm", "LB_ALGORITHM_LEAST_CONNECTIONS", "LB_ALGORITHM_ROUND_ROBIN", "LB_ALGORITHM_FASTEST_RESPONSE", "LB_ALGORITHM_CONSISTENT_HASH",
			"LB_ALGORITHM_LEAST_LOAD", "LB_ALGORITHM_FEWEST_SERVERS", "LB_ALGORITHM_RANDOM", "LB_ALGORITHM_FEWEST_TASKS", "LB_ALGORITHM_NEAREST_SERVER",
			"LB_ALGORITHM_CORE_AFFINITY", "LB_ALGORITHM_TOPOLOGY"), "LB_ALGORITHM_LEAST_CONNECTIONS"),
		def(enum("lb_algorithm_hash", "LB_ALGORITHM_CONSISTENT_HASH_SOURCE_IP_ADDRESS", "LB_ALGORITHM_CONSISTENT_HASH_SOURCE_IP_ADDRESS_AND_PORT",
			"LB_ALGORITHM_CONSISTENT_HASH_URI", "LB_ALGORITHM_CONSISTENT_HASH_CUSTOM_HEADER", "LB_ALGORITHM_CONSISTENT_HASH_CUSTOM_STRING",
			"LB_ALGORITHM_CONSISTENT_HASH_CALLID"), "LB_ALGORITHM_CONSISTENT_HASH_SOURCE_IP_ADDRESS"),
		str("lb_algorithm_consistent_hash_hdr"), number("lb_algorithm_core_nonaffinity", 2), flag("lb_algo_rr_per_se", false),
		many(ref("health_monitor_refs", "healthmonitor"), 50),
		until(within(number("graceful_disable_timeout", 1), 1, 7200, 0, -1), 31, 2, 1),
		since(within(number("graceful_disable_timeout_sec", 60), 1, 432000, 0, -1), 31, 2, 1),
		since(within(number("graceful_hm_down_disable_timeout", -1), 1, 432000, 0, -1), 30, 2, 1),
		since(def(enum("server_disable_type", "DISALLOW_NEW_CONNECTION", "ALLOW_NEW_CONNECTION_IF_PERSISTENCE_PRESENT"), "DISALLOW_NEW_CONNECTION"), 21, 1, 1),
		within(number("connection_ramp_duration", 10), 1, 300, 0),
		flag("inline_health_monitor", true), flag("enabled", true), flag("sni_enabled", true),
		integer("min_servers_up"), integer("min_health_monitors_up"),
		number("max_concurrent_connections_per_server", 0), free("max_conn_rate_per_server"),
		ref("application_persistence_profile_ref", "applicationpersistenceprofile"),
		many(message("placement_networks", ref("network_ref", "network"), str("network_name"), prefix("subnet")), 0),
		str("tier1_lr"), str("service_metadata"), free("autoscale_policy_ref"), free("autoscale_launch_config_ref"),
		def(message("fail_action", required(str("type")), free("local_rsp"), free("redirect")), map[string]any{"type": "FAIL_ACTION_CLOSE_CONN"}),
		text("append_port", "NON_DEFAULT_80_443"), flag("capacity_estimation", false), number("capacity_estimation_ttfb_thresh", 0),
		flag("delete_server_on_dns_refresh", true), flag("enable_http2", false), number("fewest_tasks_feedback_delay", 10),
		flag("host_check_enabled", false), flag("ignore_server_port", false), flag("lookup_server_by_name", false),
		since(text("pool_type", "POOL_TYPE_GENERIC_APP"), 22, 1, 1),
		within(number("request_queue_depth", 128), 0, 1<<31), flag("request_queue_enabled", false), boolean("resolve_pool_by_dns"),
		flag("rewrite_host_header_to_server_name", false), flag("rewrite_host_header_to_sni", false), flag("routing_pool", false),
		within(number("server_timeout", 0), 0, 21600000), flag("use_service_port", false), flag("use_service_ssl_mode", false),
	}, frees("analytics_policy", "analytics_profile_ref", "autoscale_networks", "conn_pool_properties", "domain_name", "east_west", "external_autoscale_groups",
		"horizon_profile", "http2_properties", "ipaddrgroup_ref", "networks", "nsx_securitygroup", "pki_profile_ref", "server_name", "server_reselect",
		"sp_gs_info", "ssl_key_and_certificate_ref", "ssl_profile_ref"))}
}

func server() Field {
	return message("servers", slices.Concat([]Field{
		required(address("ip")), within(integer("port"), 1, 65535, 0), flag("enabled", true), within(number("ratio", 1), 1, 20),
		str("hostname"), str("description"), str("external_uuid"), str("external_orchestration_id"), str("server_node"),
		flag("verify_network", false), flag("resolve_server_by_dns", false), flag("static", false), flag("rewrite_host_header", false),
		str("availability_zone"), str("mac_address"), str("prst_hdr_val"), str("autoscaling_group_name"),
		since(within(integer("preference_order"), 1, 128), 22, 1, 1),
		since(many(ref("health_monitor_refs", "healthmonitor"), 10), 31, 1, 1),
	}, frees("discovered_networks", "location", "nw_ref", "vm_ref", "srv_rdata"))...)
}

func poolGroup() *Kind {
	return &Kind{Name: "poolgroup", Type: "PoolGroup", Resource: "PERMISSION_POOLGROUP", InCloud: true, Fields: slices.Concat(object(), owned(), []Field{
		inCloud(), many(message("members", required(ref("pool_ref", "pool")), within(number("ratio", 1), 1, 1000, 0), str("priority_label"), free("deployment_state")), 0),
		str("service_metadata"), integer("min_servers"), flag("implicit_priority_labels", false), free("fail_action"), free("priority_labels_ref"),
		free("deployment_policy_ref"), boolean("enable_http2"),
	})}
}

func virtualService() *Kind {
	return &Kind{Name: "virtualservice", Type: "VirtualService", Resource: "PERMISSION_VIRTUALSERVICE", InCloud: true,
		Fields: slices.Concat(object(), owned(), []Field{
			inCloud(), text("cloud_type", "CLOUD_NONE"), fixed(ref("vrf_context_ref", "vrfcontext")), ref("se_group_ref", "serviceenginegroup"),
			fixed(def(enum("type", "VS_TYPE_NORMAL", "VS_TYPE_VH_PARENT", "VS_TYPE_VH_CHILD"), "VS_TYPE_NORMAL")),
			flag("enabled", true), flag("traffic_enabled", true),
			many(message("services", required(within(integer("port"), 0, 65535)), within(integer("port_range_end"), 0, 65535),
				flag("enable_ssl", false), flag("enable_http2", false), flag("horizon_internal_ports", false), flag("is_active_standby", false),
				ref("override_network_profile_ref", "networkprofile"), ref("override_application_profile_ref", "applicationprofile")), 2048),
			ref("network_profile_ref", "networkprofile"), ref("application_profile_ref", "applicationprofile"),
			ref("vsvip_ref", "vsvip"), ref("pool_ref", "pool"), ref("pool_group_ref", "poolgroup"),
			many(message("l4_policies", required(integer("index")), required(ref("l4_policy_set_ref", "l4policyset"))), 0),
			boolean("enable_rhi"), flag("remove_listening_port_on_vs_down", false), flag("ign_pool_net_reach", false),
			flag("use_vip_as_snat", false), flag("use_bridge_ip_as_vip", false), flag("enable_autogw", true), flag("east_west_placement", false),
			flag("scaleout_ecmp", false), flag("delay_fairness", false), flag("limit_doser", false), flag("bulk_sync_kvcache", false),
			flag("close_client_conn_on_config_update", false), flag("advertise_down_vs", false), flag("allow_invalid_client_cert", false),
			text("active_standby_se_tag", "ACTIVE_STANDBY_SE_1"), text("flow_dist", "LOAD_AWARE"), text("flow_label_type", "NO_LABEL"),
			number("max_cps_per_client", 0), number("weight", 1), integer("min_pools_up"), str("service_metadata"), str("fqdn"),
			since(many(str("bgp_peer_labels"), 128), 20, 1, 5), since(integer("bgp_local_preference"), 30, 2, 1), since(integer("bgp_num_as_path_prepend"), 30, 2, 1),
			many(ref("health_monitor_refs", "healthmonitor"), 0), str("tier1_lr"),
		}, frees("analytics_policy", "analytics_profile_ref", "azure_availability_set", "bot_policy_ref", "connections_rate_limit", "content_rewrite", "csrf_policy_ref",
			"dns_info", "dns_policies", "enable_rhi_snat", "enable_session", "error_page_profile_ref", "host_name_xlate", "http_policies", "icap_request_profile_refs",
			"jwt_config", "ldap_vs_config", "microservice_ref", "network_security_policy_ref", "nsx_securitygroup", "performance_limits", "requests_rate_limit",
			"saml_sp_config", "security_policy_ref", "server_network_profile_ref", "snat_ip", "sp_pool_refs", "ssl_key_and_certificate_refs", "ssl_profile_ref",
			"ssl_profile_selectors", "ssl_sess_cache_avg_size", "sso_policy_ref", "static_dns_records", "test_se_datastore_level_1_ref", "topology_policies",
			"traffic_clone_profile_ref", "vh_domain_name", "vh_matches", "vh_parent_vs_ref", "vh_type", "vs_datascripts", "waf_policy_ref", "client_auth",
			"connection_mirror", "discovered_networks"))}
}

func vsVip() *Kind {
	return &Kind{Name: "vsvip", Type: "VsVip", Resource: "PERMISSION_VIRTUALSERVICE", InCloud: true, Fields: slices.Concat(object(), []Field{
		inCloud(), fixed(ref("vrf_context_ref", "vrfcontext")), markers(), str("vsvip_cloud_config_cksum"), str("tier1_lr"),
		flag("east_west_placement", false), flag("use_standard_alb", false), since(many(str("bgp_peer_labels"), 128), 20, 1, 5),
		many(message("dns_info", required(str("fqdn")), text("type", "DNS_RECORD_A"), text("algorithm", "DNS_RECORD_RESPONSE_CONSISTENT_HASH"),
			within(integer("ttl"), 0, 86400), number("num_records_in_response", 1), free("cname"), free("metadata")), 1000),
		many(message("vip", slices.Concat([]Field{
			required(str("vip_id")), flag("auto_allocate_ip", false),
			def(enum("auto_allocate_ip_type", "V4_ONLY", "V6_ONLY", "V4_V6"), "V4_ONLY"),
			address("ip_address"), address("ip6_address"),
			message("ipam_network_subnet", ref("network_ref", "network"), prefix("subnet"), prefix("subnet6"), str("subnet_uuid"), str("subnet6_uuid")),
			flag("auto_allocate_floating_ip", false), flag("avi_allocated_vip", false), flag("avi_allocated_fip", false), flag("enabled", true),
			within(number("prefix_length", 32), 0, 128),
			many(message("placement_networks", ref("network_ref", "network"), prefix("subnet"), prefix("subnet6")), 10),
		}, frees("availability_zone", "discovered_networks", "floating_ip", "floating_ip6", "floating_subnet6_uuid", "floating_subnet_uuid", "network_ref",
			"port_uuid", "subnet", "subnet6", "subnet6_uuid", "subnet_uuid"))...), 0),
	})}
}

func l4PolicySet() *Kind {
	criteria := required(enum("match_criteria", "IS_IN", "IS_NOT_IN"))
	return &Kind{Name: "l4policyset", Type: "L4PolicySet", Resource: "PERMISSION_L4POLICYSET", Fields: slices.Concat(object(), owned(), []Field{
		flag("is_internal_policy", false), str("ip_reputation_db_ref"), str("geo_db_ref"),
		message("l4_connection_policy", many(message("rules",
			required(str("name")), required(integer("index")), flag("enable", true),
			message("match",
				message("port", criteria, many(within(integer("ports"), 1, 65535), 0), free("port_ranges")),
				message("protocol", criteria, required(enum("protocol", "PROTOCOL_TCP", "PROTOCOL_UDP", "PROTOCOL_SCTP"))),
				free("client_ip"), free("ip_reputation_type"), free("source_ip")),
			message("action", message("select_pool",
				required(enum("action_type", "L4_RULE_ACTION_SELECT_POOL", "L4_RULE_ACTION_SELECT_POOLGROUP")), ref("pool_ref", "pool"), ref("pool_group_ref", "poolgroup"))),
		), 0)),
	})}
}

func healthMonitor() *Kind {
	return &Kind{Name: "healthmonitor", Type: "HealthMonitor", Resource: "PERMISSION_HEALTHMONITOR", Shared: true, Open: true,
		Fields: slices.Concat(object(), []Field{
			fixed(required(enum("type", "HEALTH_MONITOR_PING", "HEALTH_MONITOR_TCP", "HEALTH_MONITOR_HTTP", "HEALTH_MONITOR_HTTPS", "HEALTH_MONITOR_EXTERNAL",
				"HEALTH_MONITOR_UDP", "HEALTH_MONITOR_DNS", "HEALTH_MONITOR_GSLB", "HEALTH_MONITOR_SIP", "HEALTH_MONITOR_RADIUS", "HEALTH_MONITOR_SMTP",
				"HEALTH_MONITOR_SCTP"))),
			within(number("send_interval", 10), 1, 3600), within(number("receive_timeout", 4), 1, 2400), within(number("successful_checks", 2), 1, 50),
			within(number("failed_checks", 2), 1, 50), within(integer("monitor_port"), 1, 65535), flag("is_federated", false),
			flag("allow_duplicate_monitors", true), str("created_by"), markers(),
			message("tcp_monitor", flag("tcp_half_open", false), free("tcp_request"), free("tcp_response"), free("maintenance_response")),
		})}
}

func network() *Kind {
	return &Kind{Name: "network", Type: "Network", Resource: "PERMISSION_NETWORK", InCloud: true, Shared: true, Open: true,
		Fields: slices.Concat(object(), []Field{
			inCloud(), ref("vrf_context_ref", "vrfcontext"), flag("dhcp_enabled", true), flag("exclude_discovered_subnets", false), markers(),
			many(message("configured_subnets", required(prefix("prefix")),
				many(message("static_ip_ranges",
					required(message("range", required(address("begin")), required(address("end")))),
					def(enum("type", "STATIC_IPS_FOR_VIP", "STATIC_IPS_FOR_SE", "STATIC_IPS_FOR_VIP_AND_SE"), "STATIC_IPS_FOR_VIP_AND_SE")), 0)), 0),
		})}
}
