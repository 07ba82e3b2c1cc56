package server

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"rollcall/naming"
	"rollcall/push"
	"rollcall/server/wire"
)

// subscribersElsewhere asks all other nodes that are alive who is subscribed to a
// service there. One that does not answer within a second is left out.
func (l *link) subscribersElsewhere(ctx context.Context, svc naming.ServiceKey) []push.Subscription {
	ctx, cancel := context.WithTimeout(ctx, ownerTimeout)
	defer cancel()
	var mu sync.Mutex
	var out []push.Subscription
	var asks sync.WaitGroup
	for _, node := range l.others() {
		asks.Go(func() {
			reply := new(wire.SubscribersReply)
			if l.peers.ask(ctx, node, "Subscribers", &wire.SubscribersRequest{Service: peerServiceKey(svc)}, reply) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range reply.GetSubscribers() {
				out = append(out, push.Subscription{Clusters: p.GetClusters(), Peer: push.Peer{
					ID: p.GetId(), IP: p.GetIp(), Port: int(p.GetPort()), Agent: p.GetAgent(), App: p.GetApp(),
				}})
			}
		})
	}
	asks.Wait()
	return out
}

// subscribers answers the same question of another node.
func (s *peerService) subscribers(_ context.Context, q *wire.SubscribersRequest) (proto.Message, error) {
	reply := new(wire.SubscribersReply)
	for _, p := range s.subscribersHere(serviceKeyOf(q.GetService())) {
		reply.Subscribers = append(reply.Subscribers, &wire.PeerSubscriber{
			Id: p.ID, Ip: p.IP, Port: int32(p.Port), Agent: p.Agent, App: p.App, Clusters: p.Clusters,
		})
	}
	return reply, nil
}
