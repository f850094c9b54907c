import { expect, test } from "@jest/globals";
import { isPublicAddress } from "../../../src/platform/http/public-addresses.js";

test.each([
  ...["8.8.8.8", "93.184.215.14", "172.15.255.255", "172.32.0.1", "100.63.255.255", "168.63.129.15"],
  ...["2606:4700:4700::1111", "2a00:1450:4001:80b::200e"],
])("%s is a public address", (address) => {
  expect(isPublicAddress(address)).toBe(true);
});

test.each([
  ["this network", "0.0.0.0", "0.1.2.3", "::"],
  ["loopback", "127.0.0.1", "127.255.255.254", "::1"],
  ["private", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1", "fec0::1"],
  ["link-local", "169.254.0.1", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0"],
  ["metadata", "169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "168.63.129.16"],
  ["shared, for tests and documents", "100.64.0.1", "198.18.0.1", "192.0.2.1", "203.0.113.1", "2001:db8::1", "3fff::1"],
  ["multicast, broadcast and reserved", "224.0.0.1", "255.255.255.255", "240.0.0.1", "ff02::1", "4000::1"],
  ["IPv4-mapped", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::ffff:7f00:1", "::ffff:0:7f00:1"],
  ["IPv4-compatible", "::127.0.0.1", "::10.0.0.1"],
  ["NAT64, 6to4 and Teredo", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:7f00:1::"],
  ["no addresses", "", "localhost", "2130706433", "0x7f.1", "010.0.0.1", "[::1]", "8.8.8.8 ", "8.8.8"],
])("addresses that are %s are not public", (_kind, ...addresses) => {
  expect(addresses.filter(isPublicAddress)).toEqual([]);
});
