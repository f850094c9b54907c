import { readFileSync } from "node:fs";
import { connect, createSecureContext } from "node:tls";
import {
  type ChannelCredentials,
  experimental,
  credentials as grpcCredentials,
  ServerCredentials,
} from "@grpc/grpc-js";
import { oneLine } from "../../kernel/errors.js";
import { SECOND } from "../../kernel/time.js";
import { isTlsFault, Refusal } from "../refusals.js";

/** There is no TLS where all are undefined. */
export interface TlsFiles {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** New connections use what the files hold then. With a CA, clients must show a certificate it signed. */
export function serverCredentials(files: TlsFiles): ServerCredentials {
  if (!files.cert || !files.key) return ServerCredentials.createInsecure();
  const certificates = new FileCertificates(files);
  const requiresClients = files.ca !== undefined;
  const { createCertificateProviderServerCredentials } = experimental;
  return createCertificateProviderServerCredentials(
    certificates,
    requiresClients ? certificates : null,
    requiresClients,
  );
}

/** New connections use what the files hold then. */
export function clientCredentials(files: TlsFiles): ChannelCredentials {
  if (!usesTls(files)) return grpcCredentials.createInsecure();
  const certificates = new FileCertificates(files);
  return experimental.createCertificateProviderChannelCredentials(certificates, files.cert ? certificates : null);
}

const usesTls = ({ ca, cert }: TlsFiles): boolean => Boolean(ca || cert);

/** A server that takes longer counts as away. */
const HANDSHAKE_MS = 2 * SECOND;
const ADDRESS = /^(?:dns:\/\/\/)?\[?(.+?)\]?:(\d+)$/;

/**
 * Connects once as clients of {@link clientCredentials} do, whose errors do not tell a refused certificate from an outage.
 *
 * @param server its name and its address, as host:port or dns:///host:port
 * @throws Refusal where TLS fails; a server that is away is no error
 */
export async function checkTls(server: { readonly name: string; readonly address: string }, files: TlsFiles) {
  if (!usesTls(files)) return;
  const [, host = "", port = ""] = ADDRESS.exec(server.address) ?? [];
  const socket = connect({ host, port: Number(port), ALPNProtocols: ["h2"], ...readUsable(files) });
  const timer = setTimeout(() => socket.destroy(), HANDSHAKE_MS);
  const fault = await new Promise<Error | undefined>((resolve) => {
    socket.on("error", resolve);
    // The first frame is awaited: in TLS 1.3 a server refuses the client after the handshake.
    socket.once("data", () => resolve(undefined));
    socket.once("close", () => resolve(undefined));
  });
  clearTimeout(timer);
  socket.destroy();
  if (!isTlsFault(fault)) return;
  throw new Refusal(`${server.name} ${server.address}: TLS failed: ${oneLine(fault)}`, {
    cause: fault,
    publicMessage: `${server.name} is unavailable`,
  });
}

type Provider = experimental.CertificateProvider;
type CaListener = Parameters<Provider["addCaCertificateListener"]>[0];
type IdentityListener = Parameters<Provider["addIdentityCertificateListener"]>[0];

interface Held {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

/** A Secret of Kubernetes is swapped some time after its mount was renewed: by the minute. */
const REREAD_MS = 10 * SECOND;

/**
 * Reads certificates again while they are in use. What cannot be read, or does not fit together since it is being
 * swapped, leaves the ones before in force: the client's own watcher would drop connections meanwhile.
 */
class FileCertificates implements Provider {
  readonly #caListeners = new Set<CaListener>();
  readonly #identityListeners = new Set<IdentityListener>();
  #held: Held;
  #timer: NodeJS.Timeout | undefined;

  /** @throws Error where a file cannot be read or used */
  constructor(private readonly files: TlsFiles) {
    this.#held = readUsable(files);
  }

  addCaCertificateListener(listener: CaListener): void {
    this.#caListeners.add(listener);
    this.#watch();
    process.nextTick(() => this.#tellCa(listener));
  }

  removeCaCertificateListener(listener: CaListener): void {
    this.#caListeners.delete(listener);
    this.#watch();
  }

  addIdentityCertificateListener(listener: IdentityListener): void {
    this.#identityListeners.add(listener);
    this.#watch();
    process.nextTick(() => this.#tellIdentity(listener));
  }

  removeIdentityCertificateListener(listener: IdentityListener): void {
    this.#identityListeners.delete(listener);
    this.#watch();
  }

  /** Node's own authorities count where there is no CA file, with those of NODE_EXTRA_CA_CERTS. */
  #tellCa(listener: CaListener): void {
    listener({ caCertificate: this.#held.ca as Buffer });
  }

  #tellIdentity(listener: IdentityListener): void {
    const { cert, key } = this.#held;
    listener(cert && key ? { certificate: cert, privateKey: key } : null);
  }

  #watch(): void {
    const isUsed = this.#caListeners.size + this.#identityListeners.size > 0;
    if (isUsed) this.#timer ??= setInterval(() => this.#reread(), REREAD_MS).unref();
    else {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }

  #reread(): void {
    let read: Held;
    try {
      read = readUsable(this.files);
    } catch {
      // The sample of certificates reports it.
      return;
    }
    if (isSame(read, this.#held)) return;
    this.#held = read;
    for (const listener of this.#identityListeners) this.#tellIdentity(listener);
    for (const listener of this.#caListeners) this.#tellCa(listener);
  }
}

function readUsable({ ca, cert, key }: TlsFiles): Held {
  const held: Held = {
    ...(ca && { ca: readFileSync(ca) }),
    ...(cert && { cert: readFileSync(cert) }),
    ...(key && { key: readFileSync(key) }),
  };
  createSecureContext(held);
  return held;
}

const isSame = (one: Held, other: Held): boolean =>
  (["ca", "cert", "key"] as const).every((name) => one[name]?.toString() === other[name]?.toString());
