declare module "cluster-key-slot" {
  /** The slot of a Redis Cluster that holds a key. */
  export default function slotOf(key: string): number;
}
