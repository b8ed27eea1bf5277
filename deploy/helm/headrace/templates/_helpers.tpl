{{- define "headrace.name" -}}
{{- if contains .Chart.Name .Release.Name -}}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* Labels of a part's objects: (dict "root" $ "part" "worker"). */}}
{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "headrace.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "headrace.name" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "headrace.image" -}}
{{ .root.Values.images.repository }}/headrace-{{ .image }}:{{ .root.Values.images.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{/* What all pods have, but for their containers. */}}
{{- define "headrace.pod" -}}
serviceAccountName: {{ include "headrace.account" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 1000
  runAsGroup: 1000
  fsGroup: 1000
  seccompProfile: {type: RuntimeDefault}
volumes:
  - {name: tmp, emptyDir: {}}
  - {name: cache, emptyDir: {sizeLimit: 1Gi}}
  - name: work
    {{- if .root.Values.home.claim }}
    persistentVolumeClaim: {claimName: {{ .root.Values.home.claim }}}
    {{- else }}
    emptyDir: {sizeLimit: 1Gi}
    {{- end }}
{{- end -}}

{{/* What all containers with Headrace have. */}}
{{- define "headrace.container" -}}
image: {{ include "headrace.image" . }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
env:
  - name: HEADRACE_HOME
    value: {{ .root.Values.home.location | quote }}
  - name: HEADRACE_CATALOG_URL
    valueFrom:
      secretKeyRef:
        name: {{ .root.Values.catalog.existingSecret | default (printf "%s-catalog" (include "headrace.name" .root)) }}
        key: {{ .root.Values.catalog.key }}
  {{- with .root.Values.environment }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if .root.Values.settings }}
envFrom:
  - configMapRef: {name: {{ include "headrace.name" .root }}-settings}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- define "headrace.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /var/cache/headrace}
- {name: work, mountPath: /var/lib/headrace}
{{- end -}}

{{/* Makes the home and the tables of the catalog; what exists stays as it is. */}}
{{- define "headrace.init" -}}
- name: init
  args: [init]
  {{- include "headrace.container" . | nindent 2 }}
  resources:
    requests: {cpu: 100m, memory: 256Mi}
    limits: {memory: 512Mi}
  volumeMounts:
    {{- include "headrace.mounts" . | nindent 4 }}
{{- end -}}

{{- define "headrace.placement" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Annotations by which pods are started again when what they read at their start has changed. */}}
{{- define "headrace.checksums" -}}
checksum/settings: {{ .Values.settings | toJson | sha256sum }}
checksum/catalog: {{ .Values.catalog | toJson | sha256sum }}
{{- end -}}
