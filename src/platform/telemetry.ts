import type { IncomingMessage, ServerResponse } from "node:http";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { NodeSDK } from "@opentelemetry/sdk-node";
import { AlwaysOffSampler, NoopSpanProcessor, ParentBasedSampler } from "@opentelemetry/sdk-trace-base";

/** What the running process offers of its telemetry. */
export interface Telemetry {
  /** Answers a scrape of `/metrics`. */
  scrape(request: IncomingMessage, response: ServerResponse): void;
  /** Sends what is still held; bounded by the SDK's own time limits. */
  close(): Promise<void>;
}

/**
 * Starts OpenTelemetry by its own `OTEL_*` variables. Metrics are always held
 * for `/metrics`; traces leave the process only where an exporter or its
 * endpoint is named, so that a laptop without a collector stays quiet. Trace
 * ids are made and handed on either way.
 *
 * It must run before the modules that measure are loaded: an instrument made
 * earlier measures nothing.
 */
export function startTelemetry(env: NodeJS.ProcessEnv, version: string): Telemetry {
  const traced =
    env["OTEL_TRACES_EXPORTER"] ?? env["OTEL_EXPORTER_OTLP_ENDPOINT"] ?? env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
  env["OTEL_LOGS_EXPORTER"] ??= "none";
  const prometheus = new PrometheusExporter({ preventServerStart: true });
  const sdk = new NodeSDK({
    serviceName: env["OTEL_SERVICE_NAME"] ?? "avion-timeline",
    resource: resourceFromAttributes({ "service.version": version }),
    autoDetectResources: false,
    metricReaders: [prometheus],
    instrumentations: [],
    ...(traced
      ? {}
      : {
          spanProcessors: [new NoopSpanProcessor()],
          sampler: new ParentBasedSampler({ root: new AlwaysOffSampler() }),
        }),
  });
  sdk.start();
  return {
    scrape: (request, response) => prometheus.getMetricsRequestHandler(request, response),
    close: () => sdk.shutdown().catch(() => undefined),
  };
}
