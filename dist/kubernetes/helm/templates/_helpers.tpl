{{/* A file with objects, as a list. */}}
{{- define "xsched.read" -}}
{{- $objects := list -}}
{{- range splitList "\n---\n" (.root.Files.Get (printf "files/%s" .file)) -}}
{{- $object := fromYaml . -}}
{{- if hasKey $object "Error" }}{{ fail $object.Error }}{{ end -}}
{{- $objects = append $objects $object -}}
{{- end -}}
{{- toYaml $objects -}}
{{- end -}}

{{/* An object, with the labels and in the namespace of the release. */}}
{{- define "xsched.object" -}}
{{- $object := .object -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version -}}
{{- $labels := dict "app.kubernetes.io/name" "xsched" "app.kubernetes.io/managed-by" .root.Release.Service "helm.sh/chart" $chart -}}
{{- $_ := set $object.metadata "labels" (merge (default (dict) $object.metadata.labels) $labels) -}}
{{- if hasKey $object.metadata "namespace" -}}
{{- $_ := set $object.metadata "namespace" .root.Release.Namespace -}}
{{- end -}}
{{ printf "---\n%s\n" (toYaml $object) }}
{{- end -}}

{{/* The two files of configuration. */}}
{{- define "xsched.data" -}}
config.toml: {{ .Values.config | default (.Files.Get "files/config.toml") | quote }}
kubernetes.toml: {{ .Values.kubernetes | default (.Files.Get "files/kubernetes.toml") | quote }}
{{- end -}}
