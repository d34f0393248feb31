package akoimport

// entry is one setting of AKO under its names in the three forms, empty where a form does not have it.
type entry struct {
	operator, chart, configMap string
	judge                      judge
}

// judge decides about the value of one key.
type judge func(im *importer, at string, value any)

const (
	l7       = "lbsync serves Services of type LoadBalancer; for Ingresses, Routes and Gateways keep AKO or another controller"
	logs     = "lbsync logs to stderr only"
	noRoutes = "with node ports no route to Pods is needed"
	podImage = "the chart has images and resources of its own"
)

// entries are all settings of AKO: those of AKODeploymentConfig v1alpha1 (operator of March 2025), and of AKO's chart and ConfigMap up to 2.2.
func entries() []entry {
	return []entry{
		{"controller", "ControllerSettings.controllerHost", "controllerIP", controller},
		{"controllerVersion", "ControllerSettings.controllerVersion", "controllerVersion", apiVersion},
		{"cloudName", "ControllerSettings.cloudName", "cloudName", text("lbsync.config.avi.cloud")},
		{"serviceEngineGroup", "ControllerSettings.serviceEngineGroupName", "serviceEngineGroupName", text("lbsync.config.avi.seGroup")},
		{"tenant.name", "ControllerSettings.tenantName", "tenantName", text("lbsync.config.avi.tenant")},
		{"tenant.context", "", "", notNeeded("objects are made in lbsync.config.avi.tenant, whatever the context")},
		{"", "ControllerSettings.vrfName", "vrfName", text("lbsync.config.avi.vrf")},
		{"clusterSelector", "", "", notNeeded("install the chart in each of these clusters")},
		{"adminCredentialRef", "", "", adminSecret},
		{"workloadCredentialRef", "", "", workloadSecret},
		{"certificateAuthorityRef", "", "", caSecret},
		{"", "avicredentials.username", "", username},
		{"", "avicredentials.password", "", secret},
		{"", "avicredentials.authtoken", "", authToken},
		{"", "avicredentials.certificateAuthorityData", "", secret},

		{"dataNetwork.name", "", "", text("lbsync.config.avi.network")},
		{"dataNetwork.cidr", "", "", subnet},
		{"dataNetwork.ipPools", "", "", notNeeded("the operator has given the network on the Controller these ranges; they stay there")},
		{"", "NetworkSettings.vipNetworkList", "vipNetworkList", vipNetworks},
		{"controlPlaneNetwork", "", "", notSupported("the address of the API server stays with the AKO operator")},
		{"extraConfigs.ingress.nodeNetworkList", "NetworkSettings.nodeNetworkList", "nodeNetworkList", nodeNetworks},
		{"extraConfigs.networksConfig.enableRHI", "NetworkSettings.enableRHI", "enableRHI", offOr("virtual services are not announced by BGP; route the VIPs, or set it on the Controller's virtual services")},
		{"extraConfigs.networksConfig.bgpPeerLabels", "NetworkSettings.bgpPeerLabels", "bgpPeerLabels", offOr("virtual services are not announced by BGP")},
		{"extraConfigs.networksConfig.nsxtT1LR", "NetworkSettings.nsxtT1LR", "nsxtT1LR", offOr("VIPs are not bound to a Tier-1 router; in an NSX-T cloud keep AKO for them, and attach its pools")},
		{"", "NetworkSettings.defaultDomain", "", domain},

		{"extraConfigs.ingress.serviceType", "L7Settings.serviceType", "serviceType", serviceType},
		{"extraConfigs.cniPlugin", "AKOSettings.cniPlugin", "cniPlugin", cniPlugin},
		{"extraConfigs.nodePortSelector.key", "nodePortSelector.key", "nodeKey", half},
		{"extraConfigs.nodePortSelector.value", "nodePortSelector.value", "nodeValue", half},
		{"extraConfigs.namespaceSelector.labelKey", "AKOSettings.namespaceSelector.labelKey", "nsSyncLabelKey", half},
		{"extraConfigs.namespaceSelector.labelValue", "AKOSettings.namespaceSelector.labelValue", "nsSyncLabelValue", half},
		{"extraConfigs.blockedNamespaceList", "AKOSettings.blockedNamespaceList", "blockedNamespaceList", blockedNamespaces},
		{"extraConfigs.ipFamily", "AKOSettings.ipFamily", "ipFamily", ipFamily},
		{"extraConfigs.disableStaticRouteSync", "AKOSettings.disableStaticRouteSync", "disableStaticRouteSync", staticRoutes},
		{"extraConfigs.fullSyncFrequency", "AKOSettings.fullSyncFrequency", "fullSyncFrequency", fullSync},
		{"extraConfigs.log.logLevel", "AKOSettings.logLevel", "logLevel", logLevel},
		{"extraConfigs.replicaCount", "replicaCount", "", replicas},
		{"extraConfigs.primaryInstance", "AKOSettings.primaryInstance", "primaryInstance", onOr("every release of the chart is one of its own; give each a class of its own by lbsync.config.providerName")},
		{"", "AKOSettings.clusterName", "clusterName", clusterName},
		{"extraConfigs.enableEvents", "AKOSettings.enableEvents", "enableEvents", notNeeded("Events are always written")},
		{"extraConfigs.apiServerPort", "AKOSettings.apiServerPort", "apiServerPort", notNeeded("lbsync.config.listen is the address of probes and metrics")},
		{"", "AKOSettings.deleteConfig", "deleteConfig", offOr("it makes AKO delete its virtual services: set it to false before you go on")},
		{"", "L4Settings.defaultLBController", "defaultLBController", defaultController},
		{"extraConfigs.l4Config.defaultDomain", "L4Settings.defaultDomain", "defaultDomain", domain},
		{"extraConfigs.l4Config.autoFQDN", "L4Settings.autoFQDN", "autoFQDN", autoFQDN},
		{"extraConfigs.l4Config.advancedL4", "", "advancedL4", offOr(l7)},

		{"extraConfigs.layer7Only", "AKOSettings.layer7Only", "layer7Only", offOr(l7)},
		{"extraConfigs.enableEVH", "AKOSettings.enableEVH", "enableEVH", offOr(l7)},
		{"extraConfigs.servicesAPI", "AKOSettings.servicesAPI", "servicesAPI", offOr(l7)},
		{"extraConfigs.istioEnabled", "AKOSettings.istioEnabled", "istioEnabled", offOr(l7)},
		{"", "AKOSettings.vpcMode", "vpcMode", offOr("NSX VPCs are not supported; keep AKO there")},
		{"extraConfigs.vipPerNamespace", "AKOSettings.vipPerNamespace", "vipPerNamespace", offOr(l7)},
		{"extraConfigs.useDefaultSecretsOnly", "AKOSettings.useDefaultSecretsOnly", "useDefaultSecretsOnly", offOr(l7)},
		{"extraConfigs.ingress.disableIngressClass", "", "", notNeeded("lbsync installs no IngressClass")},
		{"extraConfigs.ingress.defaultIngressController", "L7Settings.defaultIngController", "defaultIngController", notNeeded(l7)},
		{"extraConfigs.ingress.shardVSSize", "L7Settings.shardVSSize", "shardVSSize", notNeeded("it divides Ingresses among virtual services; each Service has its own here")},
		{"extraConfigs.ingress.passthroughShardSize", "L7Settings.passthroughShardSize", "passthroughShardSize", notNeeded("it divides passthrough Ingresses among virtual services")},
		{"extraConfigs.ingress.noPGForSNI", "L7Settings.noPGForSNI", "noPGForSNI", notNeeded(l7)},
		{"extraConfigs.ingress.enableMCI", "L7Settings.enableMCI", "enableMCI", offOr(l7)},
		{"", "L7Settings.fqdnReusePolicy", "fqdnReusePolicy", notNeeded(l7)},
		{"extraConfigs.featureGates.GatewayAPI", "featureGates.GatewayAPI", "", offOr(l7)},
		{"", "featureGates.EnablePrometheus", "enablePrometheus", notNeeded("metrics are always served")},

		{"extraConfigs.log.persistentVolumeClaim", "persistentVolumeClaim", "", notNeeded(logs)},
		{"extraConfigs.log.mountPath", "mountPath", "", notNeeded(logs)},
		{"extraConfigs.log.logFile", "logFile", "", notNeeded(logs)},
		{"extraConfigs.log.akoGatewayLogFile", "akoGatewayLogFile", "", notNeeded(logs)},
		{"extraConfigs.rbac", "rbac", "", notNeeded("the chart has rights of its own; PodSecurityPolicy is gone from Kubernetes")},
		{"extraConfigs.image", "image", "", notNeeded(podImage)},
		{"", "GatewayAPI", "", notNeeded(podImage)},
		{"", "imagePullSecrets", "", pullSecrets},
		{"", "resources", "", notNeeded(podImage)},
		{"", "securityContext", "", notNeeded("the chart's Pods are hardened already")},
		{"", "podSecurityContext", "", notNeeded("the chart's Pods are hardened already")},
		{"", "serviceAccount", "", notNeeded("the chart makes ServiceAccounts of its own")},
		{"", "service", "", notNeeded("AKO's Service of its own endpoint")},
		{"", "nameOverride", "", notNeeded("it names AKO's objects; the chart has its own nameOverride")},
		{"", "fullnameOverride", "", notNeeded("it names AKO's objects; the chart has its own fullnameOverride")},
	}
}
