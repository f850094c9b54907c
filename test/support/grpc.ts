import { type CallOptions, type Client, Metadata, type ServiceError } from "@grpc/grpc-js";

interface Method {
  requestDeserialize(bytes: Buffer): object;
  responseDeserialize(bytes: Buffer): object;
}

type Request<Of extends Method> = ReturnType<Of["requestDeserialize"]>;
type Response<Of extends Method> = ReturnType<Of["responseDeserialize"]>;

/** Every method of a service with a promise; what a request leaves out is empty. */
export type Calls<Service extends Record<keyof Service, Method>> = {
  readonly [Name in keyof Service]: (
    fields?: Partial<Request<Service[Name]>>,
    deadlineMs?: number,
  ) => Promise<Response<Service[Name]>>;
};

type Unary = (
  request: object,
  metadata: Metadata,
  options: Partial<CallOptions>,
  answered: (error: ServiceError | null, response: object) => void,
) => unknown;

/** The one gRPC client of the tests: calls a generated service over a generated client of it. */
export function callsOf<Service extends Record<keyof Service, Method>>(
  client: Client,
  service: Service,
): Calls<Service> {
  const methods = Object.entries<Method>(service).map(([name, { requestDeserialize }]) => {
    const unary = (client as unknown as Record<string, Unary>)[name] as Unary;
    const call = (fields: object = {}, deadlineMs = 10_000) =>
      new Promise((resolve, reject) => {
        const request = { ...requestDeserialize(Buffer.alloc(0)), ...fields };
        unary.call(client, request, new Metadata(), { deadline: Date.now() + deadlineMs }, (error, response) =>
          error ? reject(error) : resolve(response),
        );
      });
    return [name, call] as const;
  });
  return Object.fromEntries(methods) as Calls<Service>;
}
