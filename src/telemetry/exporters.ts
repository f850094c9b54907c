import type { IncomingMessage, ServerResponse } from "node:http";
import { DiagLogLevel, diag } from "@opentelemetry/api";
import { OTLPMetricExporter as GrpcMetrics } from "@opentelemetry/exporter-metrics-otlp-grpc";
import { OTLPMetricExporter as JsonMetrics } from "@opentelemetry/exporter-metrics-otlp-http";
import { OTLPMetricExporter as ProtobufMetrics } from "@opentelemetry/exporter-metrics-otlp-proto";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { defaultResource, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { metrics, NodeSDK } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, NoopSpanProcessor, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";
import { type Logger, silent } from "../kernel/logger.js";
import { MINUTE, SECOND } from "../kernel/time.js";
import { leaveToSdk, otelIgnored, readOtel } from "./otel-variables.js";

export type Telemetry = ReturnType<typeof startTelemetry>;

/**
 * Traces leave the process only if `OTEL_*` names an exporter or endpoint; trace ids exist either way. `/metrics` is
 * served whatever these variables say. Must run before the modules that measure are loaded: an instrument made earlier
 * measures nothing.
 */
export function startTelemetry(env: NodeJS.ProcessEnv, version: string, log: Logger = silent) {
  const ignored = otelIgnored(env);
  if (ignored.length > 0) log.warn({ variables: ignored }, "these variables of OpenTelemetry have no effect here");
  const { exportsTraces, metricExporters } = readOtel(env);
  leaveToSdk(env);
  logExportFailures(log);
  const prometheus = new PrometheusExporter({ preventServerStart: true });
  const sdk = new NodeSDK({
    resource: defaultResource().merge(
      resourceFromAttributes({ "service.name": "avion-timeline", "service.version": version }),
    ),
    resourceDetectors: [envDetector],
    metricReaders: [prometheus, ...metricExporters.map((name) => exportingReader(name, env))],
    instrumentations: [],
    ...(exportsTraces
      ? {}
      : {
          spanProcessors: [new NoopSpanProcessor()],
          sampler: new ParentBasedSampler({ root: new AlwaysOffSampler() }),
        }),
  });
  sdk.start();
  return {
    /** If false, spans without a parent are not sampled. */
    exportsTraces,
    scrape: (request: IncomingMessage, response: ServerResponse): void =>
      prometheus.getMetricsRequestHandler(request, response),
    close: (): Promise<void> => sdk.shutdown().catch(() => undefined),
  };
}

/** The exporters read their own variables; those of the reader are read here. */
function exportingReader(name: string, env: NodeJS.ProcessEnv): metrics.MetricReader {
  const ms = (variable: string, otherwise: number): number => Number(env[variable]) || otherwise;
  const exportIntervalMillis = ms("OTEL_METRIC_EXPORT_INTERVAL", MINUTE);
  const exportTimeoutMillis = Math.min(ms("OTEL_METRIC_EXPORT_TIMEOUT", 30 * SECOND), exportIntervalMillis);
  const exporter = name === "console" ? new metrics.ConsoleMetricExporter() : otlpExporter(env);
  return new metrics.PeriodicExportingMetricReader({ exporter, exportIntervalMillis, exportTimeoutMillis });
}

function otlpExporter(env: NodeJS.ProcessEnv): metrics.PushMetricExporter {
  switch (env["OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"] ?? env["OTEL_EXPORTER_OTLP_PROTOCOL"]) {
    case "grpc":
      return new GrpcMetrics();
    case "http/json":
      return new JsonMetrics();
    default:
      return new ProtobufMetrics();
  }
}

/** After so long without a failure the next one is logged. */
const OUTAGE_OVER_MS = 10 * MINUTE;

/** The SDK reports each export that fails; a collector that is away is logged once. */
function logExportFailures(log: Logger): void {
  let failedAt = Number.NEGATIVE_INFINITY;
  const report = (text: string): void => {
    const now = performance.now();
    if (now - failedAt > OUTAGE_OVER_MS) log.warn({ error: messageIn(text) }, "telemetry could not be exported");
    failedAt = now;
  };
  const unlogged = (): void => undefined;
  const logger = { error: report, warn: unlogged, info: unlogged, debug: unlogged, verbose: unlogged };
  diag.setLogger(logger, { logLevel: DiagLogLevel.ERROR, suppressOverrideMessage: true });
}

/** The SDK writes errors as JSON, with their stacks. */
function messageIn(text: string): string {
  try {
    return (JSON.parse(text) as { readonly message?: string }).message ?? text;
  } catch {
    return text;
  }
}
